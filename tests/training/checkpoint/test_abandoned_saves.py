"""An abandoned save commits nothing, and `abandon` returns once that is certain."""

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from trainhall.training.checkpoint.checkpointer import Checkpointer, SaveAbandonedError
from trainhall.training.checkpoint.format import draft
from trainhall.training.checkpoint.format.draft import Committed, Draft
from trainhall.training.checkpoint.format.names import scan
from trainhall.training.fencing import FencingToken

STATE = {"model": {"weight": torch.ones(8)}, "extra": {}}


class Saved:
    """A checkpointer in a folder, and its callbacks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.committed: list[Committed] = []
        self.errors: list[Exception] = []
        self.checkpointer = Checkpointer(
            folder,
            FencingToken("job", 1, 1),
            None,
            self.committed.append,
            on_error=self.errors.append,
        )

    def save(self) -> None:
        self.checkpointer.save(1, STATE)
        self.checkpointer.wait()


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    return Saved(tmp_path / "checkpoints")


def test_abandoned_save_is_not_committed(saved: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = draft.fsync_folder

    def then_abandon(folder: Path) -> None:
        fsync(folder)
        if folder.name.startswith(".partial"):  # only the rename is left
            saved.checkpointer.abandon()

    monkeypatch.setattr(draft, "fsync_folder", then_abandon)
    saved.save()
    assert saved.committed == []
    assert [type(error) for error in saved.errors] == [SaveAbandonedError]
    assert list(scan(saved.folder)) == []
    assert list(saved.folder.iterdir()) == [], "nor does it leave anything"


def test_abandoning_waits_for_a_rename(saved: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    begins, proceed = threading.Event(), threading.Event()
    rename = Path.rename

    def slowly(path: Path, target: Any) -> Path:
        begins.set()
        assert proceed.wait(30)
        order.append("renamed")
        return rename(path, target)

    def abandon() -> None:
        saved.checkpointer.abandon()
        order.append("given up")

    monkeypatch.setattr(Path, "rename", slowly)
    saved.checkpointer.save(1, STATE)
    assert begins.wait(30)
    other = threading.Thread(target=abandon)
    other.start()
    other.join(0.2)  # what does not wait is through by then
    proceed.set()
    other.join()
    saved.checkpointer.wait()
    assert order == ["renamed", "given up"]
    assert [committed.step for committed in saved.committed] == [1]


def test_abandoned_save_ignores_its_removed_folder(
    saved: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Draft.write

    def cleaned(self: Draft, path: str, pieces: Any) -> Any:
        saved.checkpointer.abandon()
        shutil.rmtree(self.path)  # as the next generation does
        return write(self, path, pieces)

    monkeypatch.setattr(Draft, "write", cleaned)
    saved.save()
    assert [type(error) for error in saved.errors] == [SaveAbandonedError]


def test_abandoned_save_starts_nothing(saved: Saved) -> None:
    saved.checkpointer.abandon()
    saved.save()
    assert [type(error) for error in saved.errors] == [SaveAbandonedError]
    assert not saved.folder.exists()
