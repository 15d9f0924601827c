"""The folder of an attempt on a host: the files through which rank, shim and agent talk."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel

from trainhall.training.fencing import FencingToken
from trainhall.training.link.launch import Launch

OUTPUTS_VARIABLE = "TRAINHALL_OUTPUTS"
_NAME = re.compile(r"a(\d{1,9})-g(\d{1,9})", re.ASCII)
_TRACKED = re.compile(r"metrics-(\d{1,9})-(\d{1,9})\.bin", re.ASCII)
_MAX_TRACKED = 16
"""Names of tracked metrics in a folder that count: a shim makes one, the rest is the job's own."""


class Writer(NamedTuple):
    """A writer of an attempt: the rank of a process, and the generation in which it began."""

    rank: int
    generation: int


@dataclass
class AttemptFolder:
    """The paths of one attempt on one host."""

    path: Path

    @classmethod
    def below(cls, attempts: Path, token: FencingToken) -> "AttemptFolder":
        """Return the folder of an attempt that begins on this host with a token."""
        return cls(attempts / token.job_id / f"a{token.attempt}-g{token.generation}")

    @property
    def token(self) -> FencingToken | None:
        """Return the token with which the attempt began here; None: no agent made the folder."""
        name = _NAME.fullmatch(self.path.name)
        return name and FencingToken(self.path.parent.name, int(name[1]), int(name[2]))

    @property
    def launch(self) -> Path:
        return self.path / "launch.json"

    @property
    def api_access(self) -> Path:
        """Return the address and the token of the API, if it has them."""
        return self.path / "api.json"

    @property
    def secrets(self) -> Path:
        """Return the secrets (`link.secrets.attempt_secrets`), until the shim has taken them."""
        return self.path / "secrets.json"

    @property
    def control(self) -> Path:
        return self.path / "control.bin"

    @property
    def status(self) -> Path:
        return self.path / "status.json"

    @property
    def comparison(self) -> Path:
        return self.path / "comparison.jsonl"

    def group(self, generation: int) -> Path:
        """Return an `in_place` launch whose ranks can meet: its rendezvous is known."""
        return self.path / f"group-{generation}.json"

    def profile(self, number: int) -> Path:
        """Return the request for a profile (`link.profiling.messages.ProfileRequest`)."""
        return self.path / f"profile-{number}.json"

    def rank(self, rank: int) -> Path:
        return self.path / "ranks" / str(rank)

    def stdout(self, rank: int) -> Path:
        return self.rank(rank) / "stdout.log"

    def stderr(self, rank: int) -> Path:
        return self.rank(rank) / "stderr.log"

    def metrics(self, rank: int, generation: int = 1) -> Path:
        return self.rank(rank) / f"metrics{_of(generation)}.bin"

    def events(self, rank: int, generation: int = 1) -> Path:
        return self.rank(rank) / f"events{_of(generation)}.jsonl"

    def tracked_metrics(self, writer: Writer) -> Path:
        """Return the metrics that the tracking clients of a host's ranks have logged."""
        return self.path / "tracking" / f"metrics-{writer.rank}-{writer.generation}.bin"

    def tracked_events(self, writer: Writer) -> Path:
        """Return the parameters and tags that they have logged."""
        return self.path / "tracking" / f"events-{writer.rank}-{writer.generation}.jsonl"

    @property
    def event_files(self) -> Path:
        """Return what is noted about TensorBoard's event files of the host's ranks."""
        return self.path / "event-files"

    @property
    def file_metrics(self) -> Path:
        """Return the metrics that were read from them."""
        return self.event_files / "metrics.bin"

    @property
    def file_events(self) -> Path:
        """Return parameters that were read from them, and what is wrong with them."""
        return self.event_files / "events.jsonl"

    def trackers(self) -> list[Writer]:
        """Return the writers of tracked metrics here."""
        found = sorted(path.name for path in self.path.glob("tracking/metrics-*.bin"))
        names = [match for name in found if (match := _TRACKED.fullmatch(name))]
        return [Writer(int(match[1]), int(match[2])) for match in names[:_MAX_TRACKED]]

    def writers(self) -> list[tuple[int, int]]:
        """Return the writers here: rank and generation with which each process began."""
        found: set[tuple[int, int]] = set()
        for path in self.path.glob("ranks/*/*.*"):
            generation = path.stem.partition("-")[2] or "1"
            if path.parent.name.isdigit() and generation.isdigit():
                found.add((int(path.parent.name), int(generation)))
        return sorted(found)


def _of(generation: int) -> str:
    """Return what distinguishes the files of a process that began in a later generation, since two
    writers never share one. What they print goes to the same file, one after the other."""
    return f"-{generation}" if generation > 1 else ""


def working_folder(folder: AttemptFolder, launch: Launch) -> Path:
    """Return the folder that names of outputs are relative to: the attempt's private copy of the
    code; where it has none, `outputs_folder`."""
    return _private_code(folder, launch) or folder.path / "outputs"


def outputs_folder(folder: AttemptFolder, launch: Launch) -> Path:
    """Return the folder that ranks find in `TRAINHALL_OUTPUTS`."""
    code, outputs = _private_code(folder, launch), launch.spec.outputs
    if code is None:
        return folder.path / "outputs"
    return code / ("outputs" if outputs.is_whole else outputs.path)


def _private_code(folder: AttemptFolder, launch: Launch) -> Path | None:
    """Return the attempt's copy of its code. None: it works in a folder of the host's own."""
    if launch.code is None or not Path(launch.code).is_relative_to(folder.path):
        return None
    return Path(launch.code)


def replace_json(path: Path, model: BaseModel) -> None:
    """Replace a file by a model's JSON; a reader sees the old or the new one, never half."""
    temporary = path.with_name(path.name + f".{os.getpid()}.tmp")
    temporary.write_text(model.model_dump_json())
    temporary.replace(path)
