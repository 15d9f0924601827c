"""Reproducible jobs through the real engine: paused, killed, resized, and still the same bits."""

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

STEPS = 120
SERIES = ("chain_link", "chain_samples", "loss", "gradient_norm")
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


@pytest.fixture(scope="module")
def four_slots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINHALL_GROW_AFTER", "0.5")
        with running_cluster(tmp_path_factory.mktemp("cluster"), slots=4) as running:
            yield running


@pytest.fixture
def cluster(four_slots: Cluster) -> Iterator[Cluster]:
    yield four_slots
    four_slots.cancel_everything()


@pytest.fixture(scope="module")
def whole(four_slots: Cluster) -> str:
    """A job that nothing interrupts."""
    job = submit(four_slots, 2)
    four_slots.wait_for(job, "completed")
    return job


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


def pids(cluster: Cluster, job: str) -> set[int]:
    return {process.pid for process in cluster.rank_processes(job)}


def regrouped(cluster: Cluster, job: str, generation: int, workers: int) -> set[int]:
    """The job's processes once it takes steps again in this generation."""

    def has() -> bool:
        now = cluster.job(job)
        assert now["state"] == "running", cluster.story(job)
        return bool(now["generation"] >= generation and now["world_size"] == workers)

    eventually(f"{workers} workers in generation {generation}", has)
    eventually("the ranks", lambda: len(pids(cluster, job)) == workers)
    cluster.wait_for_step(job, cluster.job(job)["step"] + 2)
    return pids(cluster, job)


def assert_same(cluster: Cluster, job: str, whole: str) -> None:
    for name in SERIES:
        points = cluster.points(job, name)
        assert [step for step, _ in points] == list(range(1, STEPS + 1))
        assert points == cluster.points(whole, name)
    assert cluster.points(job, "chain_weights")[-1] == cluster.points(whole, "chain_weights")[-1]


def test_reproducible_job_survives_pause_kill_and_resize(
    cluster: Cluster, whole: str, gate: Gate
) -> None:
    job = submit(cluster, 4, gate)
    cluster.wait_for_step(job, 5)
    step = pause(cluster, job)
    resize(cluster, job, 3)
    cluster.wait_for_step(job, step + 2)
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

    assert_same(cluster, job, whole)
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


def test_elastic_job_resizes_in_place_bit_exactly(cluster: Cluster, whole: str, gate: Gate) -> None:
    """4 → 3 → 4 workers, of which one is killed."""
    resources = {"min_workers": 3, "max_workers": 4}
    task = gate.task("synthetic", steps=STEPS)
    job = cluster.submit(SPEC | {"task": task, "resources": resources})
    cluster.wait_for_step(job, 5)
    four = pids(cluster, job)
    assert len(four) == 4

    other = cluster.submit({**SPEC, "task": task, "priority": 10, "resources": {"workers": 1}})
    three = regrouped(cluster, job, 2, 3)
    assert three < four, cluster.story(job)
    cluster.request("DELETE", f"/training/jobs/{other}")
    cluster.wait_for(other, "cancelled")
    again = regrouped(cluster, job, 3, 4)
    assert three < again

    killed = max(again - three)
    (victim,) = (p for p in cluster.rank_processes(job) if p.pid == killed)
    victim.send_signal(signal.SIGKILL)
    last = regrouped(cluster, job, 4, 4)
    assert again - {killed} < last
    gate.open()
    done = cluster.wait_for(job, "completed", timeout=120)
    assert (done["attempt"], done["generation"]) == (1, 4)
    (attempt,) = cluster.get(f"/training/jobs/{job}/attempts")["items"]
    assert [g["world_size"] for g in attempt["generations"]] == [4, 3, 4, 4]
    assert_same(cluster, job, whole)


def test_reproduce_compares_with_the_first_job(cluster: Cluster, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("to be or not to be, that is the question. " * 40)
    params = {"files": [str(text)], "context": 16, "layers": 1, "heads": 2, "width": 16}
    training = {"steps": 6, "global_batch_size": 8, "reproducible": True, "seed": 3}
    spec = {"name": "text", "task": {"name": "language_model", "params": params},
            "training": training, "resources": {"workers": 2}}  # fmt: skip
    job = cluster.submit(spec)
    cluster.wait_for(job, "completed")
    same = CliRunner().invoke(app, ["reproduce", job, "-f", "--url", cluster.url])
    assert same.exit_code == 0, same.output
    assert "Identical through step 6." in same.output
    text.write_text("whether 'tis nobler in the mind to suffer. " * 40)
    other = CliRunner().invoke(app, ["reproduce", job, "-f", "--url", cluster.url])
    assert other.exit_code == 1, other.output
    assert "The runs diverge at step 1" in other.output
