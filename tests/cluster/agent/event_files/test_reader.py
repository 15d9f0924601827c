"""Whole event files that nobody writes to any more."""

from pathlib import Path

import pytest
from support.storage.event_files import append, append_scalars, event, message, record, scalar

from trainhall.cluster.agent.event_files.reader import DamagedFileError, read_file
from trainhall.cluster.agent.event_files.records import MAX_RECORD_BYTES


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.out.tfevents.1.host"


def test_large_files_are_read_in_parts(path: Path) -> None:
    image = message((1, "image"), (4, message((4, bytes(MAX_RECORD_BYTES)))))
    append_scalars(path, "loss", [(step, 1.0) for step in range(10_000)])
    append(path, event(image), event(scalar("loss", 1.0), step=10_000))
    with path.open("ab") as file:
        file.write(record(b"half")[:-1])
    assert [found.step for found in read_file(path)] == list(range(10_001))


@pytest.mark.parametrize("damage", [bytes(16), record(b"\xff")], ids=["record", "message"])
def test_damage_follows_what_is_whole(path: Path, damage: bytes) -> None:
    append_scalars(path, "loss", [(1, 1.0), (2, 0.5)])
    at = path.stat().st_size
    with path.open("ab") as file:
        file.write(damage)
    events = read_file(path)
    assert [next(events).step for _ in range(2)] == [1, 2]
    with pytest.raises(DamagedFileError, match=f"damaged at byte {at}"):
        next(events)
