"""`trainhall plan`: what it refuses, and how a plan reads."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from trainhall.cli.base.errors import CliError
from trainhall.cli.jobs.page import plan_page
from trainhall.cli.main import app
from trainhall.cli.plan.command import as_table

TASK = "name: digits\ntask: {name: digits}\n"
SCRIPT = "name: mine\nscript: {path: /job.py}\n"


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        (TASK, ["--memory", "80Gigs"], "--memory takes a size"),
        (TASK, ["--memory", "0"], "--memory takes a size"),
        (TASK, ["--set", "training.steps=0"], "not a valid job spec"),
        (SCRIPT, [], "a script parallelizes its model itself"),
    ],
)
def test_plan_refuses_wrong_input(
    tmp_path: Path, spec: str, options: list[str], message: str
) -> None:
    (tmp_path / "job.yaml").write_text(spec)
    result = CliRunner().invoke(app, ["plan", str(tmp_path / "job.yaml"), *options])
    assert isinstance(result.exception, CliError)
    assert result.exception.exit_code == 2
    assert message in result.exception.message


@pytest.mark.parametrize("tensor", [1, 2])
def test_plan_accepts_degrees_for_either_worker_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tensor: int
) -> None:
    given: list[int] = []

    def planned(_: Any, workers: int, __: Any) -> Any:
        given.append(workers)
        return {"items": [], "refused": [], "assumed": "", "not_predicted": [],
                "choice": {}, "reason": ""}  # fmt: skip

    monkeypatch.setattr("trainhall.cli.plan.command.planned", planned)
    (tmp_path / "job.yaml").write_text(
        f"{TASK}resources: {{workers: 2, device: cpu}}\n"
        f"parallelism: {{strategy: pipeline, pipeline: 2, data: 1, tensor: {tensor}}}\n"
        "training: {steps: 1, global_batch_size: 64}\n"
    )
    command = ["plan", str(tmp_path / "job.yaml"), "--devices"]
    assert CliRunner().invoke(app, [*command, "4"]).exit_code == 0
    assert given == [4]
    if tensor == 2:
        result = CliRunner().invoke(app, [*command, "3"])
        assert isinstance(result.exception, CliError)
        assert "the number of workers, 2, is not divisible by" in str(result.exception)


def test_plan_lists_known_gpus_for_unknown(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(TASK)
    result = CliRunner().invoke(app, ["plan", str(tmp_path / "job.yaml"), "--gpu", "Voodoo 2"])
    assert isinstance(result.exception, CliError)
    assert "known: B200, H200" in result.exception.message


def test_plan_table_groups_impossible_meshes() -> None:
    kinds = ("parameters", "gradients", "optimizer", "activations", "buffers")
    item = {
        "strategy": "ddp", "mesh": {"data": 2}, "microbatches": None, "fits": False,
        "missing_bytes": 1024, "peak_memory_bytes": 5 * 2**20,
        "memory": dict.fromkeys(kinds, 2**20),
        "communication_bytes": 0, "bubble_fraction": 0.0, "step_seconds": 0.5,
    }  # fmt: skip
    refused = [
        {"strategy": "tensor", "mesh": {"tensor": tensor, "data": 4 // tensor}, "reason": "why"}
        for tensor in (4, 2)
    ]
    quick = {**item, "step_seconds": 4e-05}
    lines = as_table({"items": [item, quick], "refused": refused}).splitlines()
    assert lines[1].split()[:3] == ["ddp", "data", "2"]
    assert [line.split()[-5:-3] for line in lines[1:3]] == [["500", "ms"], ["40", "µs"]]
    assert lines[1].endswith("1.0 KiB short")
    assert lines[-1] == "  tensor (tensor 4; tensor 2 × data 2): why"


def test_plan_of_job_compares_prediction_and_measurement() -> None:
    plan: dict[str, Any] = {
        "reason": "fsdp (shard 2) has the shortest step",
        "prediction": {"peak_memory_bytes": 2 << 30, "step_seconds": 0.5},
        "measured": None,
        "error": None,
    }
    reason, heads, memory, step = plan_page(plan).splitlines()
    assert reason == plan["reason"]
    assert heads.split() == ["OF", "PREDICTED", "MEASURED", "ERROR"]
    assert step.split() == ["step", "500", "ms", "—", "—"]
    plan["measured"] = {"peak_memory_bytes": 3.0 * 2**30, "step_seconds": 0.45}
    plan["error"] = {"peak_memory_bytes": 0.5, "step_seconds": -0.1}
    *_, memory, step = plan_page(plan).splitlines()
    assert memory.split() == ["memory", "2.0", "GiB", "3.0", "GiB", "+50", "%"]
    assert step.split() == ["step", "500", "ms", "450", "ms", "-10", "%"]
    plan["measured"] = {"peak_memory_bytes": None, "step_seconds": 0.45}
    plan["error"] = {"peak_memory_bytes": None, "step_seconds": -0.1}
    *_, memory, step = plan_page(plan).splitlines()
    assert memory.split() == ["memory", "2.0", "GiB", "—", "—"]
