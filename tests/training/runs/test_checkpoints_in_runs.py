"""Checkpoints in whole runs: which remain, which are taken, and what a failed one means."""

from pathlib import Path
from typing import Any

from support.cluster.attempts import Attempt, RankServer

from trainhall.training.link.launch import Command


def job(**checkpoint: Any) -> dict[str, Any]:
    return {
        "task": {"name": "synthetic"},
        "resources": {"workers": 2},
        "training": {"steps": 20, "global_batch_size": 8},
        "checkpoint": checkpoint,
    }


def names(attempt: Attempt) -> list[str]:
    return [e["data"]["name"] for e in reversed(attempt.events(kind="checkpoint"))]


def test_rank_deletes_no_checkpoints(ranks: RankServer, tmp_path: Path) -> None:
    ranks.run(tmp_path, job(every_steps=5))
    assert len(list((tmp_path / "checkpoints").iterdir())) == 4


def damage(folder: Path) -> None:
    file = max(folder.iterdir(), key=lambda p: p.stat().st_size)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def test_run_falls_back_from_damaged_checkpoint(ranks: RankServer, tmp_path: Path) -> None:
    first = ranks.run(tmp_path, job(every_steps=8))
    damage(tmp_path / "checkpoints" / "step-00000020-a1-g1")
    second = ranks.run(tmp_path, job(), attempt=2, resume=names(first))
    assert second.codes == [0, 0], second.stderr()
    started = second.event("started")
    assert started["resumed_from"] == 16
    assert "step-00000020-a1-g1 was not used" in started["note"]
    (passed_over,) = started["passed_over"]
    assert (passed_over["name"], passed_over["reason"]) == ("step-00000020-a1-g1", "damaged")
    assert passed_over["text"] in started["note"]
    assert [step for step, _ in second.curve("loss")] == [17, 18, 19, 20]
    assert second.event("completed")["weights_sha256"] == first.event("completed")["weights_sha256"]


def test_run_without_good_checkpoint_fails(ranks: RankServer, tmp_path: Path) -> None:
    first = ranks.run(tmp_path, job())
    damage(tmp_path / "checkpoints" / "step-00000020-a1-g1")
    second = ranks.run(tmp_path, job(), attempt=2, resume=names(first))
    assert second.codes == [1, 1]
    assert second.event("failure")["type"] == "NoGoodCheckpointError"
    assert not second.events(kind="started")


def test_resumed_finished_run_completes(ranks: RankServer, tmp_path: Path) -> None:
    first = ranks.run(tmp_path, job())
    second = ranks.run(tmp_path, job(), attempt=2, resume=names(first))
    assert second.codes == [0, 0], second.stderr()
    assert not second.folder.metrics(0).exists()
    for key in ("steps", "metrics", "weights_sha256"):
        assert second.event("completed")[key] == first.event("completed")[key], key


def test_pause_with_failed_save_is_failure(ranks: RankServer, tmp_path: Path) -> None:
    tmp_path.joinpath("checkpoints").mkdir()
    # The name of the checkpoint is taken, and none is ever overwritten.
    (tmp_path / "checkpoints" / "step-00000001-a1-g1").mkdir()
    attempt = ranks.run(tmp_path, job(), command=Command.PAUSE)
    assert attempt.codes == [1, 1]
    assert attempt.event("failure")["type"] == "NotSavedError"
    assert (
        "rank 0 could not save the checkpoint of step 1" in attempt.event("failure", 1)["message"]
    )
    assert not attempt.events(kind="paused")


def test_failed_save_does_not_stop_training(ranks: RankServer, tmp_path: Path) -> None:
    tmp_path.joinpath("checkpoints").mkdir()
    (tmp_path / "checkpoints" / "step-00000010-a1-g1").mkdir()
    attempt = ranks.run(tmp_path, job(every_steps=10))
    assert attempt.codes == [0, 0], attempt.stderr()
    (unsaved,) = attempt.events(kind="not_saved")
    assert unsaved["data"]["step"] == 10
    assert "the checkpoint of step 10 was not saved: " in unsaved["data"]["message"]
    assert names(attempt) == ["step-00000020-a1-g1"]


def test_hosts_without_common_checkpoint_fail_together(ranks: RankServer, tmp_path: Path) -> None:
    """One that had none did not take part: the others waited for it."""
    first = ranks.run(tmp_path, job())
    second = ranks.run(
        tmp_path,
        job(),
        attempt=2,
        resume=names(first),
        function="support.ranks.other_names:rank_1_has_none",
    )
    assert second.codes == [1, 1]
    for rank in range(2):
        failure = second.event("failure", rank)
        assert failure["type"] == "NoGoodCheckpointError"
        assert "rank 1 does not have it" in failure["message"]
