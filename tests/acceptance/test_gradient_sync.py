"""Jobs whose gradients are combined by each algorithm, through a real coordinator."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.cluster.cluster import Cluster, running_cluster

pytestmark = pytest.mark.acceptance

SPEC: dict[str, Any] = {
    "name": "synchronised",
    "task": {"name": "digits"},
    "resources": {"workers": 3},
    "training": {"steps": 30, "global_batch_size": 48, "seed": 3},
}


@pytest.fixture(scope="module")
def three_slots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), slots=3) as running:
        yield running


def completed(cluster: Cluster, **gradient_sync: Any) -> list[float]:
    """The losses of a job."""
    job = cluster.submit(SPEC | {"parallelism": {"gradient_sync": gradient_sync}})
    assert cluster.wait_for(job, "completed")["step"] == 30, cluster.story(job)
    return [loss for _, loss in cluster.points(job, "loss")]


@pytest.fixture(scope="module")
def native_losses(three_slots: Cluster) -> list[float]:
    return completed(three_slots)


# Runs by each algorithm and under each compression are in tests/training/runs.
def test_job_learns_the_same_by_another_algorithm(
    three_slots: Cluster, native_losses: list[float]
) -> None:
    losses = completed(three_slots, algorithm="hierarchical", bucket_mb=0.01)
    assert losses == pytest.approx(native_losses, rel=1e-3)
    assert losses[-1] < losses[0]


def test_job_learns_under_compression(three_slots: Cluster, native_losses: list[float]) -> None:
    losses = completed(three_slots, compression="powersgd", bucket_mb=0.01)
    assert losses[0] == pytest.approx(native_losses[0], rel=1e-6)
    assert losses[-1] < losses[0]
