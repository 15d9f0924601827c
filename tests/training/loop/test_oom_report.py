"""A rank out of memory reports the phase, and what would need less."""

from pathlib import Path

import pytest
import torch
from support.cluster.attempts import RankServer

from trainhall.training.loop.oom_report import explained, is_out_of_memory
from trainhall.training.spec.parse import validate_spec
from trainhall.training.spec.plan import PlanAlternative, PlanPrediction

JOB = {
    "name": "test",
    "task": {"name": "digits", "params": {"hidden": [16]}},
    "training": {"steps": 4, "global_batch_size": 48},
}


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ("model", "while the model was built: "),
        ("forward", "while the forward pass ran (step 2): "),
        ("backward", "while the backward pass ran (step 1): "),
        ("optimizer", "while the optimizer made its state or took its step (step 2): "),
    ],
)
def test_oom_report_names_phase_and_remedy(
    ranks: RankServer, tmp_path: Path, phase: str, words: str
) -> None:
    attempt = ranks.run(tmp_path, JOB, function=f"support.ranks.greedy:{phase}")
    assert attempt.codes == [1]
    failure = attempt.event("failure")
    assert failure["type"] == "OutOfMemoryError"
    assert failure["message"].startswith(f"rank 0 ran out of memory on cpu {words}")
    assert "gradient_accumulation: 2 (24 instead of 48 samples at once)" in failure["message"]


def test_oom_report_advice_fits_the_job() -> None:
    spec = validate_spec(
        {
            **JOB,
            "resources": {"workers": 2},
            "parallelism": {"strategy": "fsdp"},
            "training": {
                "steps": 1, "global_batch_size": 6, "precision": "bf16",
                "gradient_accumulation": 3, "activation_checkpointing": "full",
            },
        }
    )  # fmt: skip
    error = torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.80 GiB"
    )
    assert is_out_of_memory(error)
    report = explained(error, spec, torch.device("cpu"), 1, 7)
    assert str(report) == (
        "rank 1 ran out of memory on cpu while a step ran (step 7): CUDA out of memory. "
        "Tried to allocate 2.00 GiB. It needs less with more workers (resources.workers)"
    )
    assert not is_out_of_memory(RuntimeError("shapes do not match"))


def test_oom_report_advice_respects_reproducibility() -> None:
    shards = {"reproducible": True, "logical_shards": 4, "global_batch_size": 12}
    spec = validate_spec({**JOB, "training": {"steps": 1, **shards}})
    report = str(explained(MemoryError(), spec, torch.device("cpu"), 0, 1))
    assert "gradient_accumulation: 3 (1 instead of 3 samples at once)" in report
    assert "training.reproducible: false and parallelism.strategy: fsdp" in report


def test_oom_report_includes_the_plan() -> None:
    prediction = PlanPrediction(
        peak_memory_bytes=70 << 30,
        memory={"parameters": 20 << 30, "activations": 50 << 30},
        step_seconds=1.0,
        smaller=[PlanAlternative(summary="fsdp (shard 8)", peak_memory_bytes=40 << 30)],
    )
    text = str(explained(MemoryError(), validate_spec(JOB), torch.device("cpu"), 0, 1, prediction))
    assert "A peak of 70.0 GiB was predicted, of which 50.0 GiB for activations. " in text
    assert text.endswith(". Less was predicted for fsdp (shard 8) 40.0 GiB")
