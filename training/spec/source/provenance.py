"""Provenance of a job: the state of the git repository, and the command that submitted it."""

from typing import Annotated

from pydantic import AfterValidator, Field

from trainhall.training.spec.base import SpecModel, Text
from trainhall.training.spec.source.masking import mask_command, mask_text

MAX_DIFF = 48 * 1024
"""Most characters of a diff: a spec has at most 128 KiB."""
MAX_ARGUMENTS = 256

_Line = Annotated[
    str, Field(min_length=1, max_length=1024, pattern=r"^[^\x00-\x1f\x7f]+$"),
    AfterValidator(mask_text),
]  # fmt: skip


def _mask_diff(diff: str) -> str:
    return mask_text(diff.replace("\0", "\N{REPLACEMENT CHARACTER}"))


class GitState(SpecModel):
    """State of the git repository of a job's code."""

    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")]
    branch: _Line | None = None
    """Null: none was checked out."""
    remote: _Line | None = None
    """URL of the remote, without a login."""
    dirty: bool = False
    """True: there were changes that are not in the commit."""
    diff: Annotated[str, Field(max_length=MAX_DIFF), AfterValidator(_mask_diff)] | None = None
    """Uncommitted changes of tracked files, at most 48 KiB; what looks like a secret is masked."""
    diff_truncated: bool = False
    """True: the diff was longer."""


class ProvenanceSpec(SpecModel):
    """Origin of a job."""

    git: GitState | None = None
    command: Annotated[
        list[Text], Field(max_length=MAX_ARGUMENTS), AfterValidator(mask_command)
    ] = Field(default_factory=list)
    """Command line that submitted it; what looks like a secret is masked."""
    reproduces: Annotated[str, Field(pattern=r"^[0-9a-f]{8,32}$")] | None = None
    """Id of the job that this one reproduces: with the lock of its environment."""
