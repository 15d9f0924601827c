"""A reproducible job through the real engine: paused, killed, resized, and still the same bits."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cluster.cluster import Cluster, running_cluster
from support.holds import Gate, free_task
from support.waiting import eventually
from typer.testing import CliRunner

from trainhall.cli.main import app

pytestmark = pytest.mark.acceptance

STEPS = 300
SPEC: dict[str, Any] = {
    "name": "same",
    "task": free_task("synthetic"),
    "training": {
        "steps": STEPS,
        "global_batch_size": 32,
        "gradient_clip": 0.1,
        "reproducible": True,
        "seed": 3,
    },
    "checkpoint": {"every_steps": 10},
}


@pytest.fixture
def four_slots(tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path / "cluster", slots=4) as running:
        yield running


def submit(cluster: Cluster, workers: int, gate: Gate | None = None, **training: Any) -> str:
    changed = SPEC | {"training": SPEC["training"] | training, "resources": {"workers": workers}}
    if gate is not None:
        changed["task"] = gate.task("synthetic", steps=STEPS)
    return cluster.submit(changed)


def pause(cluster: Cluster, job: str) -> int:
    cluster.put(f"/training/jobs/{job}/pause")
    step = int(cluster.wait_for(job, "paused")["step"])
    assert step < STEPS
    return step


def resize(cluster: Cluster, job: str, workers: int) -> None:
    """Go on from the newest checkpoint on another number of workers."""
    newest = max(cluster.get(f"/checkpoints/jobs/{job}")["items"], key=lambda c: c["step"])
    resources = {"resources": {"workers": workers}}
    cluster.post(f"/checkpoints/{newest['id']}/restore", json=resources)


def verify(cluster: Cluster, *jobs: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["verify", "--compare", *jobs, "--url", cluster.url])
    return result.exit_code, result.output


def test_reproducible_job_survives_pause_kill_and_resize(four_slots: Cluster, gate: Gate) -> None:
    cluster = four_slots
    whole = submit(cluster, 2)
    cluster.wait_for(whole, "completed")

    job = submit(cluster, 4, gate)
    cluster.wait_for_step(job, 5)
    step = pause(cluster, job)
    resize(cluster, job, 3)
    cluster.wait_for_step(job, step + 11)
    cluster.rank_processes(job)[-1].send_signal(signal.SIGKILL)  # the others go on in place
    eventually("the job to recover", lambda: cluster.job(job)["generation"] == 2)
    cluster.wait_for(job, "running")
    step = pause(cluster, job)
    resize(cluster, job, 1)
    cluster.wait_for_step(job, step + 1)
    pause(cluster, job)
    gate.open()
    resize(cluster, job, 4)
    assert cluster.wait_for(job, "completed")["world_size"] == 4

    for name in ("chain_link", "chain_samples", "loss", "gradient_norm"):
        points = cluster.points(job, name)
        assert [step for step, _ in points] == list(range(1, STEPS + 1))
        assert points == cluster.points(whole, name)
    assert cluster.points(job, "chain_weights")[-1] == cluster.points(whole, "chain_weights")[-1]
    code, output = verify(cluster, job[:8], whole)
    assert (code, output.strip()) == (
        0,
        f"The runs are identical in all {STEPS} steps that both have.",
    )
    shown = CliRunner().invoke(app, ["show", job, "--url", cluster.url]).output
    assert f"at step {STEPS}" in shown
    assert "chain_link" not in shown

    other = submit(
        cluster, 2, steps=12, learning_rate_schedule={"kind": "constant", "warmup_steps": 4}
    )
    cluster.wait_for(other, "completed")
    code, output = verify(cluster, job, other)
    assert code == 1
    # With another rate the first step has another result, and the second begins from it.
    assert output.startswith("The runs diverge at step 2:\n  loss: ")
