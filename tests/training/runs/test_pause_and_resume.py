"""Pauses, stops and resumes of real ranks change no bit of the result."""

from pathlib import Path
from typing import Any

import pytest
from support.cluster.attempts import Attempt, RankServer
from support.waiting import eventually

from trainhall.training.link.control import Control
from trainhall.training.link.launch import Command
from trainhall.training.link.status import EXIT_PAUSED, EXIT_STOPPED

CURVES = ("loss", "accuracy", "gradient_norm", "learning_rate")


def digits(workers: int = 2, **training: Any) -> dict[str, Any]:
    return {
        "task": {"name": "digits", "params": {"hidden": [32, 16], "dropout": 0.2}},
        "resources": {"workers": workers},
        "training": {
            "steps": 10,
            "global_batch_size": 48,
            "seed": 7,
            "gradient_clip": 1.0,
            "evaluate_every_steps": 4,
            "learning_rate_schedule": {"kind": "cosine", "warmup_steps": 5},
            **training,
        },
    }


def names(attempt: Attempt) -> list[str]:
    """The attempt's checkpoints, newest first."""
    return [e["data"]["name"] for e in reversed(attempt.events(kind="checkpoint"))]


def train_through_pauses(ranks: RankServer, folder: Path, spec: dict[str, Any]) -> list[Attempt]:
    """Pause at the first step sync of every attempt, three times, then train to the end."""
    attempts = [ranks.run(folder, spec, command=Command.PAUSE)]
    for number in (2, 3):
        attempts.append(
            ranks.run(
                folder, spec, attempt=number, resume=names(attempts[-1]), command=Command.PAUSE
            )
        )
    attempts.append(ranks.run(folder, spec, attempt=4, resume=names(attempts[-1])))
    return attempts


@pytest.mark.parametrize(
    ("workers", "options"),
    [
        pytest.param(1, {}, id="1 rank"),
        pytest.param(2, {}, id="2 ranks"),
        pytest.param(3, {}, id="3 ranks"),
        pytest.param(2, {"optimizer": "sgd", "gradient_accumulation": 3}, id="accumulation, sgd"),
        pytest.param(2, {"precision": "fp16"}, id="fp16"),
        pytest.param(2, {"precision": "bf16"}, id="bf16"),
    ],
)
def test_paused_and_resumed_is_uninterrupted_bit_for_bit(
    ranks: RankServer, tmp_path: Path, workers: int, options: dict[str, Any]
) -> None:
    spec = digits(workers, **options)
    whole = ranks.run(tmp_path / "whole", spec)
    assert whole.codes == [0] * workers, whole.stderr()
    pieces = train_through_pauses(ranks, tmp_path / "pieces", spec)
    assert [p.codes for p in pieces] == [[EXIT_PAUSED] * workers] * 3 + [[0] * workers]
    assert [p.event("paused")["step"] for p in pieces[:3]] == [1, 2, 3]
    assert [p.event("started")["resumed_from"] for p in pieces] == [None, 1, 2, 3]
    for name in CURVES:
        joined = [point for piece in pieces for point in piece.curve(name)]
        assert joined == whole.curve(name)
        assert [step for step, _ in joined] == list(range(1, 11))
    assert pieces[-1].curve("eval_loss") == whole.curve("eval_loss")
    done, expected = pieces[-1].event("completed"), whole.event("completed")
    assert done["weights_sha256"] == expected["weights_sha256"]
    assert done["steps"] == 10
    # Both are only known within an attempt.
    assert done["metrics"]["eval_accuracy"] == expected["metrics"]["eval_accuracy"]


@pytest.mark.parametrize("workers", [1, 2])
def test_job_pauses_by_itself_at_exactly_its_steps(
    ranks: RankServer, tmp_path: Path, workers: int
) -> None:
    whole = ranks.run(tmp_path / "whole", digits(workers))
    spec, folder = digits(workers, pause_at=[3, 7]), tmp_path / "pieces"
    pieces = [ranks.run(folder, spec)]
    # One that failed after it had saved there, before it had paused, is followed by another.
    pieces.append(ranks.run(folder, spec, attempt=2, resume=names(pieces[-1])))
    assert not pieces[-1].folder.metrics(0).exists()
    resume = names(pieces[0])
    pieces.append(ranks.run(folder, spec, attempt=3, resume=resume, pauses_after=3))
    resume = names(pieces[-1])
    pieces.append(ranks.run(folder, spec, attempt=4, resume=resume, pauses_after=7))
    assert [piece.codes for piece in pieces] == [[EXIT_PAUSED] * workers] * 3 + [[0] * workers]
    assert [piece.event("paused")["step"] for piece in pieces[:3]] == [3, 3, 7]
    assert names(pieces[2]) == ["step-00000007-a3-g1"]
    for name in CURVES:
        joined = [p for piece in (pieces[0], *pieces[2:]) for p in piece.curve(name)]
        assert joined == whole.curve(name)


def test_pause_reaches_all_ranks_at_one_step(ranks: RankServer, tmp_path: Path) -> None:
    spec = {
        "task": {"name": "synthetic", "params": {"step_seconds": 0.002}},
        "resources": {"workers": 2},
        "training": {"steps": 100_000, "global_batch_size": 8},
    }
    folder = ranks.start(tmp_path, spec)
    eventually("the first metrics", lambda: folder.metrics(0).exists())
    Control(folder.control).send(Command.PAUSE)
    attempt = ranks.wait(folder)
    assert attempt.codes == [EXIT_PAUSED, EXIT_PAUSED]
    step = attempt.event("paused")["step"]
    saved = attempt.event("checkpoint")
    assert saved["step"] == step
    for rank in (None, 0, 1):
        steps = [s for s, _ in attempt.curve("step_seconds", rank)]
        assert steps == list(range(1, step + 1))


def test_stop_neither_saves_nor_evaluates(ranks: RankServer, tmp_path: Path) -> None:
    attempt = ranks.run(tmp_path, digits(evaluate_every_steps=1), command=Command.STOP)
    assert attempt.codes == [EXIT_STOPPED, EXIT_STOPPED]
    assert not attempt.events(kind="checkpoint")
    assert not attempt.curve("eval_loss")
    assert not list((tmp_path / "checkpoints").iterdir())


def test_pause_at_the_last_step_completes(ranks: RankServer, tmp_path: Path) -> None:
    attempt = ranks.run(tmp_path, digits(steps=1), command=Command.PAUSE)
    assert attempt.codes == [0, 0]
    assert attempt.event("completed")["steps"] == 1


def test_run_resumes_with_more_ranks(ranks: RankServer, tmp_path: Path) -> None:
    first = ranks.run(tmp_path, digits(1), command=Command.PAUSE)
    second = ranks.run(tmp_path, digits(3), attempt=2, resume=names(first))
    assert second.codes == [0, 0, 0], second.stderr()
    assert second.event("started")["resumed_from"] == 1
    assert [s for s, _ in second.curve("loss")] == list(range(2, 11))


@pytest.mark.parametrize(
    ("workers", "strategy", "optimizer"),
    [(1, "ddp", "sgd"), (1, "ddp", "adamw"), (1, "fsdp", "sgd"), (1, "fsdp", "adamw")],
)
@pytest.mark.parametrize("function", ["rank_server:train", "unused_ranks:saves_as_before"])
def test_run_resumes_with_parameters_without_gradient(
    ranks: RankServer, tmp_path: Path, workers: int, strategy: str, optimizer: str, function: str
) -> None:
    spec = {
        **digits(workers, steps=6, optimizer=optimizer),
        "task": {"name": "support.tasks.own:Unused"},
        "parallelism": {"strategy": strategy},
    }
    whole = ranks.run(tmp_path / "whole", spec)
    assert whole.codes == [0] * workers, whole.stderr()
    function = f"support.{function}"
    first = ranks.run(tmp_path / "pieces", spec, command=Command.PAUSE, function=function)
    second = ranks.run(tmp_path / "pieces", spec, attempt=2, resume=names(first))
    assert second.codes == [0] * workers, second.stderr()
    done, expected = second.event("completed"), whole.event("completed")
    assert done["weights_sha256"] == expected["weights_sha256"]


def test_checkpoint_without_optimizer_state_is_refused(ranks: RankServer, tmp_path: Path) -> None:
    spec = digits(1, optimizer="sgd", momentum=0)
    first = ranks.run(tmp_path, spec, command=Command.PAUSE)
    for number, optimizer in enumerate(("sgd", "adamw"), start=2):
        spec = digits(1, optimizer=optimizer)
        second = ranks.run(tmp_path, spec, attempt=number, resume=names(first))
        failure = second.event("failure")
        assert failure["type"] == "StateMismatchError"
        assert "is not in the checkpoint" in failure["message"]
