"""Running attempts of built-in tasks with real ranks, without a cluster around them."""

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from support.forking import forks
from support.holds import with_tests
from support.waiting import PATIENCE

from trainhall.training.link.control import Control
from trainhall.training.link.folder import AttemptFolder, replace_json
from trainhall.training.link.frames import complete_frames
from trainhall.training.link.launch import CheckpointPlan, Command, Launch, RankSlot, TracePlan
from trainhall.training.spec.parse import validate_spec

Curve = list[tuple[int, float]]


@dataclass
class Attempt:
    """What the ranks of one finished attempt left behind."""

    folder: AttemptFolder
    codes: list[int]

    def events(self, rank: int = 0, kind: str | None = None) -> list[dict[str, Any]]:
        path = self.folder.events(rank)
        lines = path.read_text().splitlines() if path.exists() else []
        return [e for e in map(json.loads, lines) if kind in (None, e["kind"])]

    def event(self, kind: str, rank: int = 0) -> dict[str, Any]:
        """The data of the only event of a kind."""
        (found,) = self.events(rank, kind)
        data: dict[str, Any] = found["data"]
        return data

    def curve(self, name: str, rank: int | None = None) -> Curve:
        """A series as (step, value), in the order it was written."""
        path = self.folder.metrics(rank or 0)
        return [
            point
            for table_rank, columns in read_tables(path.read_bytes())
            if table_rank == rank
            for point in columns.get(name, [])
        ]

    def stderr(self, rank: int = 0) -> str:
        return self.folder.stderr(rank).read_text(errors="replace")


def read_tables(data: bytes) -> Iterator[tuple[int | None, dict[str, Curve]]]:
    """Every table of a metrics file, written here from the format's description alone."""
    start = 0
    for frame in complete_frames(data):
        at = start + 20
        start = frame.end
        (tables,) = np.frombuffer(data, "<u2", 1, at)
        at += 2
        for _ in range(tables):
            rank, rows = np.frombuffer(data, "<i4", 2, at)
            (columns,) = np.frombuffer(data, "<u2", 1, at + 8)
            at += 10
            names = []
            for _ in range(columns):
                length = int.from_bytes(data[at : at + 2], "little")
                names.append(data[at + 2 : at + 2 + length].decode())
                at += 2 + length
            steps = np.frombuffer(data, "<i8", rows, at).tolist()
            at += 16 * int(rows)
            curves = {}
            for name in names:
                curves[name] = list(
                    zip(steps, np.frombuffer(data, "<f8", rows, at).tolist(), strict=True)
                )
                at += 8 * int(rows)
            yield (None if rank < 0 else int(rank)), curves


class RankServer:
    """Starts attempts in a process of its own; see `support.groups.rank_server`."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self._link = ours.makefile("rwb")
            files = [theirs.fileno(), theirs.fileno(), 2]
            self._process = forks.fork(forks.RANKS, files=files, env=with_tests())

    def start(
        self,
        folder: Path,
        spec: Mapping[str, Any],
        *,
        attempt: int = 1,
        resume: list[str] | None = None,
        command: Command = Command.RUN,
        pauses_after: int = 0,
        trace: TracePlan | None = None,
        function: str = "support.groups.rank_server:train",
        device: Literal["cpu", "cuda"] = "cpu",
    ) -> AttemptFolder:
        """Begin an attempt under `folder`, whose `checkpoints` all attempts share.

        Args:
            function: what the ranks run, as `module:name`.
        """
        job = validate_spec({"name": "test", **spec})
        path = AttemptFolder(folder / f"attempt-{attempt}")
        path.path.mkdir(parents=True)
        (folder / "checkpoints").mkdir(exist_ok=True)
        world_size = job.resources.workers
        launch = Launch(
            job_id="job",
            attempt=attempt,
            generation=1,
            spec=job,
            world_size=world_size,
            node_rank=0,
            num_nodes=1,
            ranks=[
                RankSlot(rank=r, local_rank=r, device_kind=device, device_index=r)
                for r in range(world_size)
            ],
            checkpoint=CheckpointPlan(
                folder=str(folder / "checkpoints"),
                upload=False,
                resume=resume or [],
            ),
            pauses_after=pauses_after,
            # As `trainhall run` has it: the folder itself.
            code=job.code,
            trace=trace,
        )
        replace_json(path.launch, launch)
        Control(path.control, create=True).send(command)
        self._ask(function, world_size, path.path)
        return path

    def wait(self, folder: AttemptFolder) -> Attempt:
        return Attempt(folder, self._answer())

    def call(self, function: str, world_size: int, folder: Path) -> list[int]:
        """Run `module:name` with the folder in every rank; their exit codes."""
        self._ask(function, world_size, folder)
        return self._answer()

    def _ask(self, function: str, world_size: int, folder: Path) -> None:
        request = {"function": function, "world_size": world_size, "folder": str(folder)}
        self._link.write(json.dumps(request).encode() + b"\n")
        self._link.flush()

    def _answer(self) -> list[int]:
        codes: list[int] = json.loads(self._link.readline())["codes"]
        return codes

    def run(self, folder: Path, spec: Mapping[str, Any], **options: Any) -> Attempt:
        return self.wait(self.start(folder, spec, **options))

    def close(self) -> None:
        self._link.close()
        self._process.wait(timeout=PATIENCE)


@contextmanager
def rank_server() -> Iterator[RankServer]:
    server = RankServer()
    try:
        yield server
    finally:
        server.close()
