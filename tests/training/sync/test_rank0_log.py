"""Job-wide tables and events survive the loss of rank 0."""

import json
from pathlib import Path

import pytest
import torch

from trainhall.monitoring.codec import decode_frames
from trainhall.training.common.step_clock import HIDDEN, HostClock
from trainhall.training.link.frames import MetricTable
from trainhall.training.link.launch import Command
from trainhall.training.link.spool import EventSpool, MetricSpool
from trainhall.training.loop.metrics_recorder import Recorder
from trainhall.training.sync.rank0_log import Rank0Log
from trainhall.training.sync.step_sync import SyncResult

LOSS = MetricTable(None, [3, 4], [1.0, 2.0], {"loss": [0.5, 0.25]})


class LogRecorder:
    """A rank's log of the job, and its files."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.metrics, self.events = folder / f"{rank}.bin", folder / f"{rank}.jsonl"
        self.spool = MetricSpool(self.metrics)
        self.rank0_log = Rank0Log(rank, self.spool, EventSpool(self.events, rank))

    def tables(self) -> list[tuple[int | None, list[int], list[str]]]:
        data = self.metrics.read_bytes() if self.metrics.exists() else b""
        return [(t.rank, t.steps.tolist(), list(t.columns)) for t in decode_frames(data)]

    def kinds(self) -> list[str]:
        lines = self.events.read_text().splitlines() if self.events.exists() else []
        return [json.loads(line)["kind"] for line in lines]


def test_rank_0_writes_at_once_and_nothing_again(tmp_path: Path) -> None:
    log = LogRecorder(tmp_path, 0)
    log.rank0_log.append_tables([LOSS])
    log.rank0_log.append_event("stepped", {})
    log.rank0_log.replay()
    assert log.tables() == [(None, [3, 4], ["loss"])]
    assert log.kinds() == ["stepped"]


def test_survivor_writes_rows_missing_from_rank_0(tmp_path: Path) -> None:
    log = LogRecorder(tmp_path, 1)
    log.rank0_log.append_tables([LOSS])
    log.rank0_log.acknowledge()  # a step later
    log.rank0_log.append_tables([MetricTable(None, [5], [3.0], {"loss": [0.2]})])
    log.rank0_log.append_tables([MetricTable(None, [5], [3.0], {"accuracy": [0.9]})])
    for kind in ("gradients", "note", "stepped"):
        log.rank0_log.append_event(kind, {})
    assert (log.tables(), log.kinds()) == ([], [])
    for _ in range(2):
        log.rank0_log.replay()
        assert log.tables() == [(None, [5], ["loss"]), (None, [5], ["accuracy"])]
        assert log.kinds() == ["gradients", "stepped"]


@pytest.mark.parametrize("rank", [0, 1])
def test_recorder_is_equal_on_all_ranks(tmp_path: Path, rank: int) -> None:
    log, clock = LogRecorder(tmp_path, rank), HostClock()
    recorder = Recorder(
        rank=rank, device=torch.device("cpu"), clock=clock, spool=log.spool,
        rank0_log=log.rank0_log, metric_names=(), global_batch_size=1,
    )  # fmt: skip
    clock.start()
    clock.finish()
    recorder.step(1, [torch.tensor(1.0)], torch.tensor(1.0), 0.1)
    result = SyncResult(Command.RUN, False, 0.0, 0, 0, means=recorder.rows())
    columns = recorder.write(result)
    recorder.write_points(1, {"accuracy": 0.5})
    log.rank0_log.replay()
    rank0_log = [table for table in log.tables() if table[0] is None]
    assert rank0_log == [(None, [1], list(columns)), (None, [1], ["accuracy"])]
    assert [table[0] for table in log.tables()].count(rank) == 1
    assert columns["loss"] == [1.0]


def test_partial_columns_are_written_for_their_steps(tmp_path: Path) -> None:
    log, clock = LogRecorder(tmp_path, 0), HostClock()
    recorder = Recorder(
        rank=0, device=torch.device("cpu"), clock=clock, spool=log.spool, sending=True,
        rank0_log=log.rank0_log, metric_names=(), global_batch_size=1,
    )  # fmt: skip
    for first, known in ((1, {2}), (4, set()), (7, {7, 8, 9})):
        for step in range(first, first + 3):
            clock.start()
            if step not in known:
                clock.sending_unmeasured()
            clock.finish()
            recorder.step(step, [torch.tensor(1.0)], torch.tensor(1.0), 0.1)
        recorder.write(SyncResult(Command.RUN, False, 0.0, 0, 0, means=recorder.rows()))
    tables = list(decode_frames(log.metrics.read_bytes()))
    for rank in (None, 0):
        own = [table for table in tables if table.rank == rank]
        steps = [s for table in own if "step_seconds" in table.columns for s in table.steps]
        hidden = [s for table in own if HIDDEN in table.columns for s in table.steps]
        assert steps == list(range(1, 10))
        assert hidden == [2, 7, 8, 9]
    assert recorder.last[HIDDEN] == 0.0
