"""Whole runs of real ranks: what they learn, write and report."""

import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cluster.attempts import Attempt, RankServer
from support.storage.saved import tensors_of
from torch import Tensor

EXAMPLES = Path(__file__).parents[3] / "examples"

JOB_SERIES = {
    "loss", "accuracy", "learning_rate", "gradient_norm", "samples_per_second", "step_seconds",
    "data_seconds", "forward_seconds", "backward_seconds", "communication_seconds",
    "communication_hidden_seconds", "optimizer_seconds", "peak_memory_bytes",
}  # fmt: skip
RANK_SERIES = {name for name in JOB_SERIES if name.endswith(("_seconds", "_bytes"))}


def job(task: str = "digits", workers: int = 2, **training: Any) -> dict[str, Any]:
    return {
        "task": {"name": task},
        "resources": {"workers": workers},
        "training": {"steps": 30, "global_batch_size": 32, **training},
    }


def test_digits_example_learns_to_read(ranks: RankServer, tmp_path: Path) -> None:
    spec = yaml.safe_load((EXAMPLES / "digits.yaml").read_text())
    spec["training"]["steps"] = 700
    spec.pop("checkpoint")
    attempt = ranks.run(tmp_path, spec)
    assert attempt.codes == [0, 0], attempt.stderr()
    done = attempt.event("completed")
    assert done["metrics"]["eval_accuracy"] >= 0.95
    assert [step for step, _ in attempt.curve("eval_accuracy")] == [200, 400, 600, 700]
    assert attempt.event("started") == {
        "generation": 1,
        "resumed_from": None,
        "total_steps": 700,
        "samples": 1438,
    }


def test_every_step_has_a_point_in_every_series(ranks: RankServer, tmp_path: Path) -> None:
    attempt = ranks.run(tmp_path, job(gradient_accumulation=2))
    assert attempt.codes == [0, 0], attempt.stderr()
    steps = list(range(1, 31))
    for rank, names in ((None, JOB_SERIES), (0, RANK_SERIES), (1, RANK_SERIES)):
        for name in names:
            curve = attempt.curve(name, rank)
            assert [step for step, _ in curve] == steps, name
            assert all(math.isfinite(value) and value >= 0 for _, value in curve), name
    others = {"step_seconds", "communication_hidden_seconds", "peak_memory_bytes"}
    for rank in (0, 1):
        parts = [attempt.curve(name, rank) for name in RANK_SERIES - others]
        for i, (_, whole) in enumerate(attempt.curve("step_seconds", rank)):
            assert sum(part[i][1] for part in parts) == pytest.approx(whole)


def test_communication_overlaps_backward_with_several_buckets(
    ranks: RankServer, tmp_path: Path
) -> None:
    task = {"name": "digits", "params": {"hidden": [512, 512]}}
    spec = {**job(steps=10), "task": task}
    several = {**spec, "parallelism": {"gradient_sync": {"bucket_mb": 0.5}}}
    one, more = ranks.run(tmp_path / "one", spec), ranks.run(tmp_path / "several", several)
    assert one.codes == more.codes == [0, 0], one.stderr() + more.stderr()
    # A bucket with all gradients leaves when the backward pass has ended.
    assert not any(value for _, value in one.curve("communication_hidden_seconds"))
    for rank in (0, 1):
        hidden, backward, exposed = (
            [value for _, value in more.curve(f"{name}_seconds", rank)]
            for name in ("communication_hidden", "backward", "communication")
        )
        assert sum(hidden) > 0
        assert all(a <= b for a, b in zip(hidden, backward, strict=True))
        assert min(exposed) > 0
    # How the time is taken changes nothing.
    assert one.curve("loss") == more.curve("loss")


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_low_precision_learns_too(ranks: RankServer, tmp_path: Path, precision: str) -> None:
    attempt = ranks.run(tmp_path, job(steps=150, learning_rate=0.003, precision=precision))
    assert attempt.codes == [0, 0], attempt.stderr()
    assert attempt.event("completed")["metrics"]["eval_accuracy"] > 0.85


def test_gradients_are_clipped_and_norm_reported(ranks: RankServer, tmp_path: Path) -> None:
    options: dict[str, Any] = {"optimizer": "sgd", "momentum": 0, "learning_rate": 1.0}
    free = ranks.run(tmp_path / "free", job(steps=2, **options))
    tight = ranks.run(tmp_path / "tight", job(steps=2, gradient_clip=1e-6, **options))
    assert free.curve("gradient_norm")[0] == tight.curve("gradient_norm")[0]
    assert free.curve("gradient_norm")[0][1] > 0.1
    losses = [value for _, value in tight.curve("loss")]
    assert abs(losses[0] - losses[1]) < 0.2
    assert free.curve("loss")[1] != tight.curve("loss")[1]


def first_not_finite(attempt: Attempt) -> int:
    """The first of the last steps, of which no one has a loss and a gradient that are numbers."""
    pairs = zip(attempt.curve("loss"), attempt.curve("gradient_norm"), strict=True)
    sound = [
        step for (step, loss), (_, norm) in pairs if math.isfinite(loss) and math.isfinite(norm)
    ]
    return max(sound) + 1


def test_nan_loss_ends_training(ranks: RankServer, tmp_path: Path) -> None:
    spec = job("synthetic", optimizer="sgd", learning_rate=8.0)
    attempt = ranks.run(tmp_path, {**spec, "checkpoint": {"every_steps": 2}})
    assert attempt.codes == [1, 1]
    first = first_not_finite(attempt)
    saved = [event["data"]["step"] for event in attempt.events(kind="checkpoint")]
    assert saved
    assert max(saved) < first
    newest = tmp_path / "checkpoints" / f"step-{max(saved):08}-a1-g1"
    tensors = tensors_of(newest)
    assert tensors
    assert all(bool(t.isfinite().all()) for t in tensors.values()), "that is a good one"
    for rank in (0, 1):
        failure = attempt.event("failure", rank)
        assert failure["type"] == "NonFiniteLossError"
        assert f"at step {first};" in failure["message"]
        assert f"the newest checkpoint before it is of step {max(saved)};" in failure["message"]


def test_fp16_skips_only_a_few_steps(ranks: RankServer, tmp_path: Path) -> None:
    options: dict[str, Any] = {"optimizer": "sgd", "learning_rate": 1e6, "precision": "fp16"}
    attempt = ranks.run(tmp_path, job("synthetic", **options))
    assert attempt.codes == [1, 1]
    (note,) = attempt.events(kind="note")
    first_overflow = next(step for step, value in attempt.curve("loss") if not math.isfinite(value))
    assert f"at step {first_overflow}; the step was skipped" in note["data"]["message"]
    assert f"at step {first_not_finite(attempt) + 20};" in attempt.event("failure")["message"]


def test_failure_suggests_a_remedy(ranks: RankServer, tmp_path: Path) -> None:
    attempt = ranks.run(tmp_path, job(global_batch_size=4096))
    assert attempt.codes == [1, 1]
    failures = {rank: attempt.event("failure", rank) for rank in (0, 1)}
    # A slower rank may find the other gone before it comes to its data.
    found = {r: f for r, f in failures.items() if f["type"] == "TooFewSamplesError"}
    assert found, failures
    for rank, failure in found.items():
        assert "give at most 1438" in failure["message"]
        assert "Traceback" in failure["traceback"]
        assert "TooFewSamplesError" in attempt.stderr(rank)


def test_epochs_set_the_number_of_steps(ranks: RankServer, tmp_path: Path) -> None:
    attempt = ranks.run(tmp_path, job(steps=None, epochs=2, global_batch_size=500))
    assert attempt.event("completed")["steps"] == 4


def test_checkpoints_are_saved_on_schedule_and_end(ranks: RankServer, tmp_path: Path) -> None:
    attempt = ranks.run(tmp_path, {**job(), "checkpoint": {"every_steps": 12}})
    saved = [e["data"] for e in attempt.events(kind="checkpoint")]
    assert [s["step"] for s in saved] == [12, 24, 30]
    assert saved[-1]["metrics"]["loss"] == attempt.curve("loss")[-1][1]


def test_unwritable_checkpoint_folder_fails_before_training(
    ranks: RankServer, tmp_path: Path
) -> None:
    (tmp_path / "checkpoints").symlink_to("/proc", target_is_directory=True)
    attempt = ranks.run(tmp_path, job())
    assert attempt.codes == [1, 1]
    assert attempt.event("failure")["type"] == "StorageNotWritableError"
    assert "checkpoint.path: rank 0 cannot write in" in attempt.event("failure")["message"]
    assert not attempt.folder.metrics(0).exists(), "no step was taken"


def test_checkpoints_come_by_the_clock(ranks: RankServer, tmp_path: Path) -> None:
    spec = job("synthetic", steps=60)
    spec["task"]["params"] = {"step_seconds": 0.01}
    attempt = ranks.run(tmp_path, {**spec, "checkpoint": {"every_seconds": 0.05}})
    assert attempt.codes == [0, 0], attempt.stderr()
    steps = [e["data"]["step"] for e in attempt.events(kind="checkpoint")]
    assert len(steps) >= 3
    assert steps == sorted(set(steps))


def no_derivative(at: int, **training: Any) -> dict[str, Any]:
    return {
        "task": {"name": "support.tasks.own:NoDerivative", "params": {"at": at}},
        "resources": {"workers": 1},
        "training": {"steps": 8, "global_batch_size": 8, **training},
        "checkpoint": {"every_steps": 2},
    }


def saved_weights(attempt: Attempt) -> dict[int, list[Tensor]]:
    """Those of each checkpoint, by its step."""
    folder = attempt.folder.path.parent / "checkpoints"
    return {
        event["data"]["step"]: [
            tensor
            for name, tensor in tensors_of(folder / event["data"]["name"]).items()
            if name.startswith(("model/0", "model/4", "optimizer"))
        ]
        for event in attempt.events(kind="checkpoint")
    }


@pytest.mark.parametrize("at", [4, 8])
def test_nan_weights_are_not_saved(ranks: RankServer, tmp_path: Path, at: int) -> None:
    spec = no_derivative(at, gradient_clip=1.0)
    attempt = ranks.run(tmp_path, spec)
    assert attempt.codes == [1]
    assert all(math.isfinite(loss) for _, loss in attempt.curve("loss"))
    message = attempt.event("failure")["message"]
    assert attempt.event("failure")["type"] == "NonFiniteLossError"
    assert f"the norm of the gradient is nan at step {at};" in message
    assert f"the newest checkpoint before it is of step {at - 2};" in message
    assert not attempt.events(kind="completed")
    weights = saved_weights(attempt)
    assert list(weights) == list(range(2, at, 2))
    assert all(tensors and all(t.isfinite().all() for t in tensors) for tensors in weights.values())


def test_fp16_skipping_every_step_ends_training(ranks: RankServer, tmp_path: Path) -> None:
    spec = no_derivative(3, precision="fp16", steps=60)
    spec["task"]["params"]["lasts"] = True
    attempt = ranks.run(tmp_path, spec)
    assert attempt.codes == [1]
    message = attempt.event("failure")["message"]
    # Steps 3 to 22 are skipped like any step that overflows.
    assert "the norm of the gradient is nan at step 23; 21 steps in a row were skipped" in message
    for tensors in saved_weights(attempt).values():
        assert tensors
        assert all(t.isfinite().all() for t in tensors)
