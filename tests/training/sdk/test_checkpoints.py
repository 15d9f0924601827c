"""The report of a script's checkpoint that could not be saved."""

from pathlib import Path

import pytest

from trainhall.training.checkpoint.format.errors import NotSavedError
from trainhall.training.fencing import FencingToken
from trainhall.training.sdk.checkpoints import Checkpoints


def test_failed_save_names_its_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    unsaved: list[tuple[int, str]] = []

    def not_saved(step: int, message: str) -> None:
        unsaved.append((step, message))

    saves = Checkpoints(
        blocked / "checkpoints", FencingToken("job", 1, 1), [], {}, None,
        shared_by_hosts=False, committed=lambda done: None, not_saved=not_saved,
    )  # fmt: skip
    saves.save({"weight": 1}, 3, {})
    with pytest.raises(
        NotSavedError, match="rank 0 could not save the checkpoint of step 3: NotADir"
    ):
        saves.finish()
    ((step, why),) = unsaved
    assert step == 3
    assert why.startswith("the checkpoint of step 3 was not saved: NotADirectoryError")

    # The ranks may be at different steps; each tells its own.
    messages: list[str | None] = []

    def gathered(error: str | None) -> list[str | None]:
        messages.append(error)
        return [None, error]

    monkeypatch.setattr(saves._checkpointer._ranks, "gather", gathered)
    with pytest.raises(NotSavedError, match="rank 1 could not save the checkpoint of step 3"):
        saves.finish()
    assert "step 3" in str(messages)
