"""Whole runs of jobs that divide the model: pauses, low precision, evaluation."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.cluster.attempts import Attempt, RankServer
from support.storage.data_files import write_text

from trainhall.parallelism.pipelining import transit
from trainhall.training.link.launch import Command
from trainhall.training.link.status import EXIT_PAUSED


def digits(workers: int, parallelism: dict[str, Any], **training: Any) -> dict[str, Any]:
    return {
        "task": {"name": "digits", "params": {"hidden": [30, 16], "dropout": 0.2}},
        "resources": {"workers": workers},
        "parallelism": parallelism,
        "training": {
            "steps": 5,
            "global_batch_size": 48,
            "seed": 7,
            "gradient_clip": 1.0,
            "evaluate_every_steps": 2,
            **training,
        },
    }


def newest(attempt: Attempt) -> list[str]:
    return [e["data"]["name"] for e in reversed(attempt.events(kind="checkpoint"))]


@pytest.mark.parametrize(
    ("workers", "parallelism", "options"),
    [
        pytest.param(3, {"strategy": "fsdp"}, {"precision": "bf16"}, id="3 ranks, bf16"),
        pytest.param(
            4, {"strategy": "fsdp", "data": 2, "reshard_after_forward": False},
            {"precision": "fp16", "gradient_accumulation": 2}, id="2 × 2, fp16, accumulation",
        ),
        pytest.param(
            4, {"strategy": "tensor", "data": 2}, {"precision": "fp16"}, id="tensor, fp16"
        ),
        pytest.param(
            4, {"strategy": "pipeline", "data": 2}, {"precision": "fp16"}, id="pipeline, fp16"
        ),
        pytest.param(3, {"strategy": "model"}, {"precision": "bf16"}, id="model, bf16"),
        pytest.param(
            4, {"strategy": "parameter_server", "servers": 2},
            {"precision": "fp16", "gradient_accumulation": 2}, id="parameter_server, fp16",
        ),
        pytest.param(
            4, {"strategy": "fsdp", "tensor": 2}, {"precision": "bf16"}, id="fsdp × tensor, bf16"
        ),
    ],
)  # fmt: skip
def test_paused_and_resumed_is_uninterrupted_bit_for_bit(
    ranks: RankServer,
    tmp_path: Path,
    workers: int,
    parallelism: dict[str, Any],
    options: dict[str, Any],
) -> None:
    spec = digits(workers, parallelism, **options)
    whole = ranks.run(tmp_path / "whole", spec)
    assert whole.codes == [0] * workers, whole.stderr()
    first = ranks.run(tmp_path / "pieces", spec, command=Command.PAUSE)
    assert first.codes == [EXIT_PAUSED] * workers, first.stderr()
    second = ranks.run(tmp_path / "pieces", spec, attempt=2, resume=newest(first))
    assert second.codes == [0] * workers, second.stderr()
    for name in ("loss", "accuracy", "gradient_norm"):
        assert first.curve(name) + second.curve(name) == whole.curve(name)
    assert second.curve("eval_loss") == whole.curve("eval_loss")
    done, expected = second.event("completed"), whole.event("completed")
    assert done["weights_sha256"] == expected["weights_sha256"]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_fsdp_trains_as_ddp_does_in_every_precision(
    ranks: RankServer, tmp_path: Path, precision: str
) -> None:
    task = {"name": "digits", "params": {"hidden": [30]}}
    options = {"precision": precision, "optimizer": "sgd", "steps": 8}
    runs = []
    for strategy in ("ddp", "fsdp"):
        spec = {**digits(3, {"strategy": strategy}, **options), "task": task}
        runs.append(ranks.run(tmp_path / strategy, spec))
        assert runs[-1].codes == [0, 0, 0], runs[-1].stderr()
    for name in ("loss", "gradient_norm", "eval_loss", "eval_accuracy"):
        (ddp, fsdp) = ([value for _, value in run.curve(name)] for run in runs)
        assert fsdp == pytest.approx(ddp, rel=1e-5 if precision == "fp32" else 1e-3), name
    for name in ("communication_seconds", "peak_memory_bytes", "samples_per_second"):
        assert len(runs[1].curve(name)) == 8
    assert [seconds for _, seconds in runs[1].curve("communication_hidden_seconds")] == [0.0] * 8


SPREAD: dict[str, tuple[int, dict[str, Any]]] = {
    "ddp": (3, {"strategy": "ddp"}),
    "fsdp": (3, {"strategy": "fsdp"}),
    "fsdp and tensor": (4, {"strategy": "fsdp", "tensor": 2}),
    "tensor": (2, {"strategy": "tensor"}),
    "pipeline": (2, {"strategy": "pipeline", "microbatches": 4}),
    "zbv": (2, {"strategy": "pipeline", "schedule": "zbv"}),
    "model": (2, {"strategy": "model"}),
    "parameter_server": (4, {"strategy": "parameter_server"}),
}
"""Workers and `parallelism`."""


@pytest.fixture(scope="module")
def in_fp32(ranks: RankServer, tmp_path_factory: pytest.TempPathFactory) -> Attempt:
    """One rank alone, in float32."""
    folder = tmp_path_factory.mktemp("fp32")
    write_text(folder / "text")
    attempt = ranks.run(folder, in_precision("fp32", 1, {}, folder / "text"))
    assert attempt.codes == [0], attempt.stderr()
    return attempt


def in_precision(
    precision: str, workers: int, parallelism: dict[str, Any], text: Path
) -> dict[str, Any]:
    params = {"size": "tiny", "context": 16, "files": [str(text)]}
    options = {"precision": precision, "optimizer": "sgd", "learning_rate": 0.1, "steps": 12}
    return {
        **digits(workers, parallelism, **options),
        "task": {"name": "language_model", "params": params},
    }


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize(
    "spread",
    [
        "ddp",
        *(
            pytest.param(name, marks=() if name == "pipeline" else pytest.mark.slow)
            for name in SPREAD
            if name != "ddp"
        ),
    ],
)
def test_low_precision_stays_near_float32(
    ranks: RankServer, tmp_path: Path, in_fp32: Attempt, spread: str, precision: str
) -> None:
    write_text(tmp_path / "text")
    workers, parallelism = SPREAD[spread]
    attempt = ranks.run(tmp_path, in_precision(precision, workers, parallelism, tmp_path / "text"))
    assert attempt.codes == [0] * workers, attempt.stderr()
    losses, expected = ([loss for _, loss in a.curve("loss")] for a in (attempt, in_fp32))
    assert expected[-1] < 0.9 * expected[0], "it learns"
    assert losses == pytest.approx(expected, rel=0.005 if precision == "fp16" else 0.01)
    (norms, others) = ([n for _, n in a.curve("gradient_norm")] for a in (attempt, in_fp32))
    assert norms == pytest.approx(others, rel=0.05)
    assert losses != expected, "autocast did its work"


def test_overflow_on_one_rank_skips_step_everywhere(ranks: RankServer, tmp_path: Path) -> None:
    spec = digits(3, {"strategy": "fsdp"}, precision="fp16", optimizer="sgd", learning_rate=1e6)
    attempt = ranks.run(tmp_path, {**spec, "task": {"name": "synthetic"}})
    (note,) = attempt.events(kind="note")
    assert "the step was skipped" in note["data"]["message"]


@pytest.mark.parametrize(
    ("workers", "parallelism", "where"),
    [
        (2, {"strategy": "ddp"}, "in_the_loss"),
        (2, {"gradient_sync": {"algorithm": "ring"}}, "in_the_loss"),
        (2, {"strategy": "fsdp"}, "in_a_part"),
        (2, {"strategy": "tensor"}, "in_a_part"),
        (3, {"strategy": "pipeline"}, "in_a_part"),  # rank 1 holds the stage in the middle
        (2, {"strategy": "pipeline"}, "in_the_loss"),
        (2, {"strategy": "parameter_server"}, "in_a_part"),  # rank 1 is the server
        (3, {"strategy": "parameter_server"}, "in_the_loss"),
    ],
)
def test_planted_overflows_skip_steps_everywhere(
    ranks: RankServer, tmp_path: Path, workers: int, parallelism: dict[str, Any], where: str
) -> None:
    spec = digits(workers, parallelism, precision="fp16")
    attempt = ranks.run(tmp_path, spec, function=f"support.ranks.overflow:{where}")
    assert attempt.codes == [0] * workers, attempt.stderr()
    for rank in range(workers):
        facts = json.loads((attempt.folder.rank(rank) / "facts.json").read_text())
        holds = not (parallelism.get("strategy") == "parameter_server" and rank < workers - 1)
        # 2**16 was halved twice, and the optimizer has taken 2 of 4 steps.
        assert facts == {"scale": 2**14, "steps": [2] if holds else [], "finite": True}, rank


def test_pipeline_reports_waiting_time(ranks: RankServer, tmp_path: Path) -> None:
    options = {"strategy": "pipeline", "microbatches": 4}
    attempt = ranks.run(tmp_path, digits(2, options, evaluate_every_steps=None))
    assert attempt.codes == [0, 0], attempt.stderr()
    measured = [value for _, value in attempt.curve("bubble_fraction")]
    assert len(measured) == 5
    assert all(0 <= value < 1 for value in measured)
    assert {v for _, v in attempt.curve("bubble_fraction_expected")} == {1 / 5}
    ((step, hidden),) = attempt.curve("communication_hidden_seconds")
    assert step == transit.FIRST + 1
    passes = (attempt.curve(f"{name}_seconds")[step - 1][1] for name in ("forward", "backward"))
    assert 0 <= hidden <= sum(passes)
    whole = ranks.run(tmp_path / "one", digits(1, {}, evaluate_every_steps=None))
    for name in ("loss", "eval_loss"):
        assert len(attempt.curve(name)) == len(whole.curve(name))


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        ("tensor", "declares no layers that tensor parallelism can split"),
        (
            "pipeline",
            "declares no layers to cut between; choose ddp or fsdp, or have"
            " a task of your own declare them in `declaration()` (docs/strategies.md#models)",
        ),
    ],
)
def test_unsupported_model_fails_at_start(
    ranks: RankServer, tmp_path: Path, strategy: str, words: str
) -> None:
    spec = {**digits(2, {"strategy": strategy}), "task": {"name": "support.tasks.own:Plain"}}
    attempt = ranks.run(tmp_path, spec)
    assert attempt.codes == [1, 1]
    assert words in attempt.event("failure")["message"]
