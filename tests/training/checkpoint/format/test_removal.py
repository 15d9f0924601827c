"""Deleting takes checkpoints alone, at once, and never what a live attempt writes."""

import shutil
from pathlib import Path

import pytest
from support.storage.checkpoint_writer import write

from trainhall.training.checkpoint.format.draft import Draft
from trainhall.training.checkpoint.format.errors import NotRemovedError
from trainhall.training.checkpoint.format.names import CheckpointName, removed_name, scan
from trainhall.training.checkpoint.format.removal import (
    remove_checkpoint,
    remove_leftovers,
    retire,
    vanish,
)
from trainhall.training.fencing import FencingToken
from trainhall.training.spec.recovery import CheckpointSpec


def test_checkpoint_is_removed_even_if_damaged(tmp_path: Path) -> None:
    write(tmp_path, 1, 7)
    folder = tmp_path / "step-00000007-a1-g1"
    (folder / "manifest.json").write_bytes(b"damaged")
    remove_checkpoint(folder)
    assert list(tmp_path.iterdir()) == []


def test_removal_ignores_other_folders(tmp_path: Path) -> None:
    write(tmp_path, 1, 7)
    good = tmp_path / "step-00000007-a1-g1"
    home = tmp_path / "home"
    shutil.copytree(good, home)
    empty = tmp_path / "step-00000008-a1-g1"
    empty.mkdir()
    link = tmp_path / "step-00000009-a1-g1"
    link.symlink_to(good)
    file = tmp_path / "step-00000010-a1-g1"
    file.write_text("a file")
    missing = tmp_path / "step-00000011-a1-g1"
    before = sorted(tmp_path.rglob("*"))
    for path in (home, empty, link, file, missing, tmp_path, Path("/")):
        with pytest.raises(NotRemovedError, match=str(path)):
            remove_checkpoint(path)
    assert sorted(tmp_path.rglob("*")) == before


def test_interrupted_removal_leaves_no_partial_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 1, 7)

    def cut_short(path: Path) -> None:
        next(path.iterdir()).unlink()
        raise OSError("power cut")

    monkeypatch.setattr(shutil, "rmtree", cut_short)
    with pytest.raises(OSError, match="power cut"):
        remove_checkpoint(tmp_path / "step-00000007-a1-g1")
    monkeypatch.undo()
    assert scan(tmp_path) == []
    # The same name may be committed and removed again over the remains.
    shutil.rmtree(tmp_path / removed_name(CheckpointName(7, 1, 1)) / "x", ignore_errors=True)
    write(tmp_path, 1, 7)
    remove_checkpoint(tmp_path / "step-00000007-a1-g1")
    assert list(tmp_path.iterdir()) == []


def test_removal_takes_only_older_own_drafts(tmp_path: Path) -> None:
    writers = {
        "older attempt": FencingToken("job", 1, 5),
        "older generation": FencingToken("job", 2, 1),
        "itself": FencingToken("job", 2, 2),
        "newer generation": FencingToken("job", 2, 3),
        "newer attempt": FencingToken("job", 3, 1),
        "another job": FencingToken("other", 1, 1),
    }
    drafts = {who: Draft.create(tmp_path, token, 9).path for who, token in writers.items()}
    tombstone = tmp_path / removed_name(CheckpointName(1, 1, 1))
    tombstone.mkdir()
    bystander = tmp_path / ".partial-notes"
    bystander.mkdir()
    gone = remove_leftovers(tmp_path, FencingToken("job", 2, 2))
    expected = {drafts["older attempt"], drafts["older generation"], tombstone}
    assert set(gone) == {path.name for path in expected}
    assert set(tmp_path.iterdir()) == {bystander, *drafts.values()} - expected
    assert remove_leftovers(tmp_path / "missing", FencingToken("job", 2, 2)) == []


def test_retention_does_not_count_damaged_checkpoints(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        write(tmp_path / "source" / str(step), 1, step)
        name = f"step-{step:08d}-a1-g1"
        shutil.move(tmp_path / "source" / str(step) / name, tmp_path / name)
    (tmp_path / "step-00000003-a1-g1" / "manifest.json").write_bytes(b"damaged")
    retire(tmp_path, CheckpointSpec(keep_latest=1))
    assert [found.name.step for found in scan(tmp_path)] == [3, 2]


def test_removal_accepts_anything_named_like_checkpoint(tmp_path: Path) -> None:
    bare = tmp_path / "step-00000008-a1-g1"
    bare.mkdir()
    (bare / "rest").touch()
    vanish(bare)
    vanish(bare)  # what is gone already is gone
    (tmp_path / removed_name(CheckpointName(8, 1, 1))).mkdir()
    vanish(bare)  # finishes what was cut short
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(NotRemovedError, match="not named"):
        vanish(tmp_path)
