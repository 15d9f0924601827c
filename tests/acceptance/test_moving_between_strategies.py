"""A job goes on from its checkpoint under another strategy, through a real coordinator."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cluster.cluster import Cluster, running_cluster

pytestmark = pytest.mark.acceptance


@pytest.fixture
def four_slots(tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path / "cluster", slots=4) as running:
        yield running


def losses(cluster: Cluster, job: str) -> dict[int, float]:
    return dict(cluster.points(job, "loss"))


def test_paused_ddp_job_resumes_under_fsdp(four_slots: Cluster) -> None:
    cluster = four_slots
    spec: dict[str, Any] = {
        "name": "moves",
        "task": {"name": "digits"},
        "resources": {"workers": 4},
        "training": {"steps": 100_000, "global_batch_size": 32, "seed": 7},
    }
    moved = cluster.submit(spec)
    cluster.wait_for_step(moved, 20)
    cluster.put(f"/training/jobs/{moved}/pause")
    paused = cluster.wait_for(moved, "paused")
    (checkpoint,) = cluster.get(f"/checkpoints/jobs/{moved}")["items"]
    assert checkpoint["step"] == paused["step"]

    cluster.post(
        f"/checkpoints/{checkpoint['id']}/restore",
        json={"parallelism": {"strategy": "fsdp"}, "resources": {"workers": 2}},
    )
    after = paused["step"] + 20
    cluster.wait_for_step(moved, after)
    running = cluster.job(moved)
    assert (running["spec"]["parallelism"]["strategy"], running["world_size"]) == ("fsdp", 2)
    assert (running["attempt"], len(cluster.rank_processes(moved))) == (2, 2)
    cluster.put(f"/training/jobs/{moved}/pause")
    cluster.wait_for(moved, "paused")

    found = losses(cluster, moved)
    last = max(found)
    assert sorted(found) == list(range(1, last + 1)), "no step is missing, none came twice"
    untouched = cluster.submit({**spec, "training": {**spec["training"], "steps": last}})
    cluster.wait_for(untouched, "completed")
    expected = losses(cluster, untouched)
    # The samples of each step are the same, and so is the mathematics: only sums round otherwise.
    assert [found[step] for step in sorted(found)] == pytest.approx(
        [expected[step] for step in sorted(found)], rel=1e-2, abs=1e-3
    )
