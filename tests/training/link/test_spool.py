"""Spools hold whole records only, and a full disk stops no training."""

import errno
import json
import os
from pathlib import Path

import pytest
from support.cluster.attempts import read_tables

from trainhall.training.link import spool as spools
from trainhall.training.link.events import RankEvent
from trainhall.training.link.frames import MetricTable, complete_frames
from trainhall.training.link.spool import EventSpool, MetricSpool, newest_event, newest_frame


class Disk:
    """A disk with room for so many bytes more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room = 1 << 30
        self._write = os.write
        monkeypatch.setattr(os, "write", self.write)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        taken = min(self.room, len(data))
        if not taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= taken
        return self._write(fd, data[:taken])


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def table(step: int) -> MetricTable:
    return MetricTable(None, [step], [0.0], {"loss": [float(step)]})


def test_metrics_wait_for_room_on_a_full_disk(tmp_path: Path, disk: Disk) -> None:
    spool = MetricSpool(tmp_path / "metrics.bin")
    spool.append([table(1)])
    whole = spool.path.stat().st_size
    disk.room = 10
    spool.append([table(2)])
    spool.append([table(3)])
    assert spool.path.stat().st_size == whole, "half a frame would hide all that follow"
    disk.room = 1 << 30
    spool.append([table(4)])
    data = spool.path.read_bytes()
    assert [frame.sequence for frame in complete_frames(data)] == [1, 2, 3, 4]
    losses = [point for _, columns in read_tables(data) for point in columns["loss"]]
    assert losses == [(step, float(step)) for step in (1, 2, 3, 4)]


def test_events_wait_for_room_on_a_full_disk(tmp_path: Path, disk: Disk) -> None:
    spool = EventSpool(tmp_path / "events.jsonl", rank=0)
    disk.room = 10
    spool.append("note", {"message": "one"})
    assert spool.path.read_bytes() == b""
    disk.room = 1 << 30
    spool.append("note", {"message": "two"})
    events = [json.loads(line) for line in spool.path.read_text().splitlines()]
    assert [(e["sequence"], e["data"]["message"]) for e in events] == [(1, "one"), (2, "two")]


def test_events_hold_no_half_surrogate_pairs(tmp_path: Path) -> None:
    """Python has one in the name of a file that is not UTF-8; no reader of JSON accepts it."""
    spool = EventSpool(tmp_path / "events.jsonl", rank=0)
    spool.append("failure", {"message": "no label for \udcff.png 🙂"})
    (line,) = spool.path.read_bytes().splitlines()
    assert RankEvent.model_validate_json(line).data["message"] == "no label for ?.png 🙂"


def test_spool_is_bounded(tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "MAX_WAITING_BYTES", 200)
    spool = MetricSpool(tmp_path / "metrics.bin")
    disk.room = 0
    for step in range(1, 100):
        spool.append([table(step)])
    disk.room = 1 << 30
    spool.append([table(100)])
    data = spool.path.read_bytes()
    sequences = [frame.sequence for frame in complete_frames(data)]
    assert sequences == list(range(1, len(sequences) + 1))
    assert 1 < len(sequences) < 10
    losses = [point for _, columns in read_tables(data) for point in columns["loss"]]
    assert losses[-1] == (100, 100.0), "the oldest go first"


def test_spool_reports_other_disk_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(fd: int, data: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "write", broken)
    with pytest.raises(OSError, match="Input/output"):
        MetricSpool(tmp_path / "metrics.bin").append([table(1)])


def test_newest_records_of_long_files_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = MetricSpool(tmp_path / "metrics.bin")
    events = EventSpool(tmp_path / "events.jsonl", rank=0)
    for step in range(1, 101):
        metrics.append([table(step)])
        events.append("note", {"message": str(step)})
    whole = [metrics.path.read_bytes(), events.path.read_bytes()]
    for path, part in ((metrics.path, b"THM1"), (events.path, b'{"seq')):
        with path.open("ab") as file:
            file.write(part)  # of a process that was killed
    monkeypatch.setattr(spools, "_PART_BYTES", 500)
    assert (newest_frame(metrics.path), newest_event(events.path)) == (100, 100)
    assert [metrics.path.read_bytes(), events.path.read_bytes()] == whole
    for path in (tmp_path / "none", tmp_path / "empty"):
        assert (newest_frame(path), newest_event(path)) == (0, 0)
        (tmp_path / "empty").touch()
