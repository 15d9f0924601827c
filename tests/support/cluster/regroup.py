"""An attempt whose ranks regroup in place, driven through its shim, without an agent."""

import json
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.cluster.agent_process import launch_of
from support.cluster.shims import Run
from support.holds import TESTS
from support.waiting import eventually

from trainhall.cluster.agent.shim import folder_ipc
from trainhall.monitoring.codec import decode_frames
from trainhall.training.link.folder import replace_json
from trainhall.training.link.launch import CheckpointPlan, Launch, RankSlot
from trainhall.training.link.progress import newest_step
from trainhall.training.link.status import RankState, ShimStatus

Devices = Sequence[int]


class Elastic(Run):
    """One shim on one folder, whose launch is replaced as a coordinator would."""

    def __init__(self, path: Path, spec: dict[str, Any], workers: int) -> None:
        job = {**spec, "resources": {"workers": workers}}
        checkpoints = path.parent / f"{path.name}-checkpoints"
        checkpoints.mkdir(parents=True)
        plan = CheckpointPlan(folder=str(checkpoints), upload=False)
        self.checkpoints = checkpoints
        super().__init__(
            path, launch_of(job, in_place=True, checkpoint=plan, code=TESTS), "--preload"
        )

    @property
    def step(self) -> int:
        return newest_step(self.folder.path) or 0

    def reach(self, step: int) -> None:
        try:
            eventually(f"step {step}", lambda: self.step >= step)
        except AssertionError as error:
            story = [f"{self.step=}", f"{self.status=}", f"{self.pids()=}", self.errors()]
            raise AssertionError("\n".join([str(error), *story])) from None

    def rank(self, rank: int) -> RankState:
        return next(state for state in self.status.ranks if state.rank == rank)

    def pids(self) -> dict[int, int | None]:
        return {state.rank: state.pid for state in self.status.ranks}

    def kill(self, rank: int, number: signal.Signals = signal.SIGKILL) -> None:
        pid = self.rank(rank).pid
        assert pid is not None
        os.kill(pid, number)

    def wait_for_failed_ranks(self, *ranks: int) -> ShimStatus:
        eventually(
            f"ranks {ranks} have failed",
            lambda: {each.rank for each in self.status.failed_ranks} == set(ranks),
        )
        return self.status

    def regroup(self, devices: Devices, generation: int | None = None) -> None:
        """Have the shim go on with the next generation, with a rank on each of these devices."""
        self.send(devices, generation)
        generation = self.launch.generation
        eventually("the shim took it up", lambda: self.status.generation >= generation)

    def send(self, devices: Devices, generation: int | None = None) -> None:
        """Send the launch, whether the shim takes it up or not."""
        self.launch = self.next(devices, generation)
        replace_json(self.folder.launch, self.launch)
        eventually("the shim listens", lambda: folder_ipc.notify_launch(self.folder))

    def next(self, devices: Devices, generation: int | None = None) -> Launch:
        workers = len(devices)
        return self.launch.model_copy(
            update={
                "generation": generation or self.launch.generation + 1,
                "broken": self.launch.generation
                if self.status.failed_ranks
                else self.launch.broken,
                "spec": self.launch.spec.model_copy(
                    update={
                        "resources": self.launch.spec.resources.model_copy(
                            update={"workers": workers}
                        )
                    }
                ),
                "world_size": workers,
                "ranks": [
                    RankSlot(rank=r, local_rank=r, device_kind="cpu", device_index=device)
                    for r, device in enumerate(devices)
                ],
            }
        )

    def events(self, kind: str) -> list[dict[str, Any]]:
        """The data of all ranks' events of a kind, in the order of time."""
        found = []
        for path in self.folder.path.glob("ranks/*/events*.jsonl"):
            found += [json.loads(line) for line in path.read_text().splitlines()]
        found.sort(key=lambda event: event["time"])
        return [event["data"] for event in found if event["kind"] == kind]

    def job_wide(self, name: str) -> dict[int, float]:
        """By step, what ranks have told of a job-wide number."""
        values: dict[int, float] = {}
        for path in self.folder.path.glob("ranks/*/metrics*.bin"):
            for table in decode_frames(path.read_bytes()):
                if table.rank is None and name in table.columns:
                    values.update(
                        zip(table.steps.tolist(), table.columns[name].tolist(), strict=True)
                    )
        return values

    def result(self) -> dict[str, Any]:
        """What a job that completes tells."""
        eventually("the shim to end", lambda: self.process.poll() is not None)
        status = self.wait()
        assert status.outcome == "completed", (status, self.errors())
        return self.events("completed")[-1]

    def errors(self) -> str:
        files = self.folder.path.glob("ranks/*/stderr.log")
        return "\n".join(path.read_text(errors="replace") for path in files)


@contextmanager
def elastic(folder: Path) -> Iterator[Any]:
    """Starts attempts from specs, each in a folder of its own; whatever is left is ended."""
    started: list[Elastic] = []

    def start(spec: dict[str, Any], workers: int) -> Elastic:
        started.append(Elastic(folder / f"attempt-{len(started)}", spec, workers))
        return started[-1]

    try:
        yield start
    finally:
        for one in started:
            one.end()
