"""What is told of the whole job, should rank 0 not come to it."""

import json
from pathlib import Path

import pytest
import torch

from trainhall.monitoring.codec import decode_frames
from trainhall.training.clock import HIDDEN, HostClock
from trainhall.training.job_wide import JobWide
from trainhall.training.link import Command, EventSpool, MetricSpool, MetricTable
from trainhall.training.pulse import Beat
from trainhall.training.recorder import Recorder

LOSS = MetricTable(None, [3, 4], [1.0, 2.0], {"loss": [0.5, 0.25]})


class Told:
    """What a rank tells of the job, and its files."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.metrics, self.events = folder / f"{rank}.bin", folder / f"{rank}.jsonl"
        self.spool = MetricSpool(self.metrics)
        self.job_wide = JobWide(rank, self.spool, EventSpool(self.events, rank))

    def tables(self) -> list[tuple[int | None, list[int], list[str]]]:
        data = self.metrics.read_bytes() if self.metrics.exists() else b""
        return [(t.rank, t.steps.tolist(), list(t.columns)) for t in decode_frames(data)]

    def kinds(self) -> list[str]:
        lines = self.events.read_text().splitlines() if self.events.exists() else []
        return [json.loads(line)["kind"] for line in lines]


def test_rank_0_writes_at_once_and_nothing_again(tmp_path: Path) -> None:
    told = Told(tmp_path, 0)
    told.job_wide.append([LOSS])
    told.job_wide.tell("stepped", {})
    told.job_wide.tell_again()
    assert told.tables() == [(None, [3, 4], ["loss"])]
    assert told.kinds() == ["stepped"]


def test_another_rank_writes_what_rank_0_may_not_have_come_to(tmp_path: Path) -> None:
    told = Told(tmp_path, 1)
    told.job_wide.append([LOSS])
    told.job_wide.forget()  # a step later
    told.job_wide.append([MetricTable(None, [5], [3.0], {"loss": [0.2]})])
    told.job_wide.append([MetricTable(None, [5], [3.0], {"accuracy": [0.9]})])
    for kind in ("gradients", "note", "stepped"):
        told.job_wide.tell(kind, {})
    assert (told.tables(), told.kinds()) == ([], [])
    for _ in range(2):
        told.job_wide.tell_again()
        assert told.tables() == [(None, [5], ["loss"]), (None, [5], ["accuracy"])]
        assert told.kinds() == ["gradients", "stepped"]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_recorder_tells_the_same_on_all_ranks(tmp_path: Path, rank: int) -> None:
    told, clock = Told(tmp_path, rank), HostClock()
    recorder = Recorder(
        rank=rank, device=torch.device("cpu"), clock=clock, spool=told.spool,
        job_wide=told.job_wide, metric_names=(), global_batch_size=1,
    )  # fmt: skip
    clock.start()
    clock.finish()
    recorder.step(1, [torch.tensor(1.0)], torch.tensor(1.0), 0.1)
    beat = Beat(Command.RUN, False, 0.0, 0, 0, means=recorder.rows())
    columns = recorder.write(beat)
    recorder.write_points(1, {"accuracy": 0.5})
    told.job_wide.tell_again()
    job_wide = [table for table in told.tables() if table[0] is None]
    assert job_wide == [(None, [1], list(columns)), (None, [1], ["accuracy"])]
    assert [table[0] for table in told.tables()].count(rank) == 1
    assert columns["loss"] == [1.0]


def test_what_is_known_of_some_steps_is_told_of_these(tmp_path: Path) -> None:
    told, clock = Told(tmp_path, 0), HostClock()
    recorder = Recorder(
        rank=0, device=torch.device("cpu"), clock=clock, spool=told.spool, sending=True,
        job_wide=told.job_wide, metric_names=(), global_batch_size=1,
    )  # fmt: skip
    for first, known in ((1, {2}), (4, set()), (7, {7, 8, 9})):
        for step in range(first, first + 3):
            clock.start()
            if step not in known:
                clock.untold()
            clock.finish()
            recorder.step(step, [torch.tensor(1.0)], torch.tensor(1.0), 0.1)
        recorder.write(Beat(Command.RUN, False, 0.0, 0, 0, means=recorder.rows()))
    tables = list(decode_frames(told.metrics.read_bytes()))
    for rank in (None, 0):
        own = [table for table in tables if table.rank == rank]
        steps = [s for table in own if "step_seconds" in table.columns for s in table.steps]
        hidden = [s for table in own if HIDDEN in table.columns for s in table.steps]
        assert steps == list(range(1, 10))
        assert hidden == [2, 7, 8, 9]
    assert recorder.last[HIDDEN] == 0.0
