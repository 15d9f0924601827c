"""Event files of an attempt: each value once, whatever becomes of the agent or the files."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from support.cluster.agent_process import launch_of
from support.cluster.attempts import read_tables
from support.storage.event_files import append, append_scalars, event, message, record, scalar

from trainhall.cluster.agent.event_files import tail
from trainhall.cluster.agent.event_files.records import MAX_RECORD_BYTES
from trainhall.cluster.agent.event_files.tail import EventFileTail
from trainhall.training.link.folder import AttemptFolder, replace_json, working_folder
from trainhall.training.link.launch import Launch
from trainhall.training.link.regular_file import open_regular
from trainhall.training.link.status import RankState, ShimStatus

NAME = "events.out.tfevents.1000.host.example.org.77.0"


class Host:
    """An attempt's folder, and the agent that follows it."""

    def __init__(self, path: Path) -> None:
        self.folder = AttemptFolder(path)
        self.launch: Launch = launch_of({"script": {"path": "/x.py"}, "resources": {"workers": 2}})
        self.root = working_folder(self.folder, self.launch)
        self.root.mkdir()

    def start(self) -> None:
        tail.prepare(self.folder, self.launch)
        self.restart()

    def restart(self) -> None:
        found = EventFileTail.open(self.folder, self.launch)
        assert found is not None
        self.tail = found

    def poll(self) -> None:
        while self.tail.poll(ended=True):
            pass

    def points(self) -> dict[str, list[tuple[int, float]]]:
        found: dict[str, list[tuple[int, float]]] = {}
        path = self.folder.file_metrics
        for rank, columns in read_tables(path.read_bytes()) if path.exists() else ():
            for name, points in columns.items():
                name = name if rank is None else f"{name} of {rank}"
                found.setdefault(name, []).extend(points)
        return found

    def notes(self) -> list[str]:
        return [data["message"] for kind, data in self.events() if kind == "note"]

    def events(self) -> list[tuple[str, Any]]:
        path = self.folder.file_events
        lines = path.read_text().splitlines() if path.exists() else []
        return [(found["kind"], found["data"]) for found in map(json.loads, lines)]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    host = Host(tmp_path)
    host.start()
    return host


def test_values_are_read_as_they_are_written(host: Host) -> None:
    path = host.root / "runs" / NAME
    append_scalars(path, "train/loss", [(1, 0.5), (2, 0.25)])
    host.poll()
    half = record(event(scalar("train/loss", 0.125), step=3))
    with path.open("ab") as file:
        file.write(half[:20])
    host.poll()
    assert host.points() == {"train/loss": [(1, 0.5), (2, 0.25)]}
    with path.open("ab") as file:
        file.write(half[20:])
    host.poll()
    assert host.points() == {"train/loss": [(1, 0.5), (2, 0.25), (3, 0.125)]}
    assert host.events() == []


def test_earlier_files_are_not_this_attempts(tmp_path: Path) -> None:
    host = Host(tmp_path)
    old = host.root / "runs" / "old" / NAME
    append_scalars(old, "loss", [(1, 1.0)])
    host.start()
    append_scalars(old, "loss", [(5, 0.5)])
    append_scalars(host.root / "runs" / "old" / f"{NAME}.2", "loss", [(6, 0.25)])
    host.poll()
    assert host.points() == {"loss": [(5, 0.5), (6, 0.25)]}


@pytest.mark.parametrize("lost", ["frame", "half the frame", "nothing"])
def test_killed_agent_repeats_nothing(host: Host, lost: str) -> None:
    path = host.root / NAME
    append_scalars(path, "loss", [(1, 1.0)])
    host.poll()
    before = host.folder.file_metrics.stat().st_size
    append_scalars(path, "loss", [(2, 0.5)])
    host.poll()
    if lost != "nothing":
        os.truncate(host.folder.file_metrics, before + 10 * (lost == "half the frame"))
    host.restart()
    host.poll()
    append_scalars(path, "loss", [(3, 0.25)])
    host.poll()
    assert host.points() == {"loss": [(1, 1.0), (2, 0.5), (3, 0.25)]}


def test_several_folders_name_their_curves(host: Host) -> None:
    append_scalars(host.root / "runs" / "a" / NAME, "loss", [(1, 1.0)], time=2000)
    append_scalars(host.root / "runs" / "b" / NAME, "loss", [(1, 2.0)])
    host.poll()
    append_scalars(host.root / "runs" / "c" / "d" / NAME, "loss", [(1, 3.0)])
    host.poll()
    assert host.points() == {"b/loss": [(1, 2.0)], "a/loss": [(1, 1.0)], "c/d/loss": [(1, 3.0)]}


def test_later_folders_have_a_name(host: Host) -> None:
    append_scalars(host.root / "runs" / "a" / NAME, "loss", [(1, 1.0)])
    host.poll()
    host.restart()
    append_scalars(host.root / "runs" / "a" / "val" / NAME, "loss", [(1, 2.0)])
    append_scalars(host.root / "runs" / "b" / NAME, "loss", [(1, 3.0)])
    host.poll()
    assert host.points() == {"loss": [(1, 1.0)], "val/loss": [(1, 2.0)], "b/loss": [(1, 3.0)]}


def test_first_file_waits_for_others(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    append_scalars(host.root / "a" / NAME, "loss", [(1, 1.0)])
    assert not host.tail.poll(ended=False)
    assert host.points() == {}
    monkeypatch.setattr(tail, "SETTLE_SECONDS", 0.0)
    host.tail.poll(ended=False)
    assert host.points() == {"loss": [(1, 1.0)]}


def test_files_belong_to_the_writing_rank(host: Host) -> None:
    ranks = [RankState(rank=rank, pid=76 + rank) for rank in (0, 1)]
    status = ShimStatus(job_id="job", attempt=1, generation=1, phase="running", ranks=ranks)
    replace_json(host.folder.status, status)
    append_scalars(host.root / NAME, "loss", [(1, 1.0)])
    append_scalars(host.root / NAME.replace("77", "76"), "loss", [(1, 2.0)])
    append_scalars(host.root / "events.out.tfevents.9.host", "acc", [(1, 3.0)])
    host.poll()
    assert host.points() == {"loss": [(1, 2.0)], "loss of 1": [(1, 1.0)], "acc": [(1, 3.0)]}


def test_damaged_files_are_noted_once(host: Host) -> None:
    path = host.root / NAME
    append_scalars(path, "loss", [(1, 1.0)])
    with path.open("ab") as file:
        file.write(bytes(16))
    append(host.root / f"{NAME}.v2", b"\xff", event(scalar("acc", 0.5), step=2))
    for _ in range(2):
        host.poll()
        host.restart()
        append_scalars(path, "loss", [(2, 1.0)])
    assert host.points() == {"loss": [(1, 1.0)], "acc": [(2, 0.5)]}
    damaged, wrong = host.notes()
    assert f"{NAME} is damaged at byte " in damaged
    assert "a record is no event" in wrong


def test_odd_files_do_no_harm(host: Host, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    append_scalars(outside / NAME, "loss", [(1, 1.0)])
    (host.root / "runs").symlink_to(outside)
    (host.root / f"{NAME}.link").symlink_to(outside / NAME)
    os.mkfifo(host.root / f"{NAME}.pipe")
    with (host.root / f"{NAME}.large").open("wb") as file:
        file.truncate(2**40)
    short = host.root / f"{NAME}.short"
    append_scalars(short, "acc", [(1, 1.0), (2, 1.0)])
    host.poll()
    os.truncate(short, 10)
    host.poll()
    host.poll()
    assert host.points() == {"acc": [(1, 1.0), (2, 1.0)]}
    found = sorted(host.notes())
    assert [note.removeprefix(f"TensorBoard: {NAME}.")[:30] for note in found] == [
        "large is damaged at byte 0: wh",
        "link is no regular file, and i",
        "pipe is no regular file, and i",
        "short has become shorter, from",
    ]


def test_values_that_cannot_be_are_noted(host: Host) -> None:
    values = [("x" * 129, 1), ("a\nb", 1), ("below", -1), ("kept", 0)]
    append(host.root / NAME, *(event(scalar(t, 1.0), step=s, time=-1.0) for t, s in values))
    host.poll()
    assert host.points() == {"kept": [(0, 1.0)]}
    assert len(host.notes()) == 3


def test_images_are_passed_over(host: Host) -> None:
    image = message((1, "image"), (4, message((4, bytes(MAX_RECORD_BYTES)))))
    path = host.root / NAME
    append(path, event(scalar("a", 1.0), step=1), event(image), event(scalar("a", 2.0), step=2))
    host.poll()
    assert host.points() == {"a": [(1, 1.0), (2, 2.0)]}


def test_full_disk_loses_nothing(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    append_scalars(host.root / NAME, "loss", [(1, 1.0)])
    with monkeypatch.context() as patch:
        patch.setattr(tail, "append_or_nothing", lambda *_: False)
        with pytest.raises(OSError, match="No space"):
            host.poll()
    host.poll()
    assert host.points() == {"loss": [(1, 1.0)]}


def test_jobs_without_event_files_have_no_spool(host: Host) -> None:
    (host.root / "model.pt").write_bytes(b"x")
    host.poll()
    assert not host.folder.file_metrics.exists()
    assert not host.folder.file_events.exists()


def test_damaged_state_is_no_failure(host: Host) -> None:
    (host.folder.event_files / "state.json").write_text('{"rank": "x"}')
    assert EventFileTail.open(host.folder, host.launch) is None


def test_file_may_grow_while_it_is_read(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    path = host.root / NAME
    append_scalars(path, "acc", [(1, 1.0)])
    host.poll()

    def open_later(name: Path) -> int:
        append_scalars(path, "acc", [(3, 1.0)])
        return open_regular(name)

    append_scalars(path, "acc", [(2, 1.0)])
    with monkeypatch.context() as patch:
        patch.setattr(f"{tail.__name__}.open_regular", open_later)
        host.tail.poll(ended=False)
    append_scalars(path, "acc", [(4, 1.0)])
    host.poll()
    assert host.points() == {"acc": [(step, 1.0) for step in range(1, 5)]}
    assert host.notes() == []
