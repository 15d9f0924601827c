"""The folder of a simulated cluster: what killed processes left is removed, and nothing else."""

import os
import tempfile
from pathlib import Path

import pytest

from trainhall.cluster.simulator.mock.folder import FRESH_SECONDS, PREFIX, temporary_folder


def test_next_start_removes_leftovers_of_killed_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def age(folder: Path) -> None:
        (folder / "x").mkdir(exist_ok=True)
        then = folder.stat().st_mtime - 2 * FRESH_SECONDS
        os.utime(folder, (then, then))

    left, fresh, other = (tmp_path / n for n in (f"{PREFIX}left", f"{PREFIX}fresh", "other"))
    for folder in (left, fresh, other):
        folder.mkdir()
    age(left)
    age(other)
    (tmp_path / f"{PREFIX}link").symlink_to(other)
    with temporary_folder() as mine:
        age(mine)
        with temporary_folder() as second:
            assert mine.is_dir(), "it is in use"
            assert second != mine
        assert not left.exists()
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{PREFIX}fresh", f"{PREFIX}link", "other",
    }  # fmt: skip
    assert (other / "x").is_dir()
