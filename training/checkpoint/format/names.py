"""Names the folders of checkpoints, and finds them. Free of torch.

    step-00000120-a2-g1                     a committed checkpoint: step, attempt, generation
    .partial-1f0c2d3e-step-00000120-a2-g1   being written; `1f0c2d3e` stands for the job
    .removed-step-00000120-a2-g1            being deleted

Only the first is ever read. The rename between them is what makes a checkpoint appear and vanish
at once.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from trainhall.training.fencing import FencingToken

MANIFEST = "manifest.json"

_NAME = re.compile(r"step-([0-9]{8,19})-a([1-9][0-9]{0,18})-g([1-9][0-9]{0,18})")
_PARTIAL = re.compile(r"\.partial-([0-9a-f]{8})-(.+)")
_REMOVED_PREFIX = ".removed-"


@dataclass(frozen=True)
class CheckpointName:
    """A checkpoint's step and the fencing token under which it was written."""

    step: int
    attempt: int
    generation: int

    def __post_init__(self) -> None:
        if self.step < 0 or self.attempt < 1 or self.generation < 1:
            raise ValueError(
                "a checkpoint has a step from 0, an attempt from 1 and a generation from 1, not "
                f"step {self.step}, attempt {self.attempt}, generation {self.generation}"
            )

    def __str__(self) -> str:
        return f"step-{self.step:08d}-a{self.attempt}-g{self.generation}"

    @property
    def age_key(self) -> tuple[int, int, int]:
        """Ascending from old to new. A later attempt may stand at an earlier step: it went back."""
        return (self.attempt, self.generation, self.step)


def parse_name(name: str) -> CheckpointName | None:
    """Return the parts of a checkpoint's folder name; None for any other name."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    step, attempt, generation = (int(part) for part in match.groups())
    parsed = CheckpointName(step, attempt, generation)
    # One checkpoint has one name: `step-0000000120-…` would be a second one for step 120.
    return parsed if str(parsed) == name else None


@dataclass(frozen=True)
class PartialName:
    """The name of a temporary folder. Two jobs that share a parent folder never share one."""

    job_tag: str
    name: CheckpointName

    @classmethod
    def of(cls, token: FencingToken, step: int) -> Self:
        return cls(job_tag(token.job_id), CheckpointName(step, token.attempt, token.generation))

    def __str__(self) -> str:
        return f".partial-{self.job_tag}-{self.name}"


def parse_partial(name: str) -> PartialName | None:
    """Return the parts of a temporary folder's name; None for any other name."""
    match = _PARTIAL.fullmatch(name)
    if match is None:
        return None
    inner = parse_name(match.group(2))
    return None if inner is None else PartialName(match.group(1), inner)


def removed_name(name: CheckpointName) -> str:
    """Return a checkpoint's name while it is deleted."""
    return f"{_REMOVED_PREFIX}{name}"


def is_removed_name(name: str) -> bool:
    head, _, rest = name.partition(_REMOVED_PREFIX)
    return head == "" and parse_name(rest) is not None


def job_tag(job_id: str) -> str:
    """Return the eight hexadecimal digits that stand for a job in names of temporary folders."""
    return hashlib.sha256(job_id.encode()).hexdigest()[:8]


@dataclass(frozen=True)
class CheckpointFolder:
    """A folder named like a checkpoint, which `verify_folder` has not checked yet."""

    path: Path
    name: CheckpointName


def scan(folder: Path) -> list[CheckpointFolder]:
    """Return the checkpoints in `folder`, newest first; none if there is no such folder.

    Temporary folders, folders being deleted, links and files are passed over.
    """
    try:
        entries = sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    found = [
        CheckpointFolder(path, name)
        for path in entries
        if (name := parse_name(path.name)) is not None and path.is_dir() and not path.is_symlink()
    ]
    return sorted(found, key=lambda f: f.name.age_key, reverse=True)
