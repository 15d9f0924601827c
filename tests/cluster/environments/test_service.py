"""Locks of environments: the first of a job stays, and those who may read it do."""

from typing import Any

import pytest
from support.cluster.simulated import SimulatedCluster

from trainhall.cluster.errors import ConflictError, NotFoundError
from trainhall.cluster.wire.environment_lock import EnvironmentLock

LOCK = EnvironmentLock(
    python="3.12",
    platform="linux-x86_64",
    torch="host",
    requirements="einops==0.8.2 \\\n    --hash=sha256:00\nx @ https://x.example/x.whl\n",
    options=["--index", "https://me:secret@x.example/simple"],
)


async def running(cluster: SimulatedCluster, **more: Any) -> str:
    await cluster.add_node("alpha", 2)
    job_id = await cluster.submit(**more)
    await cluster.run_until(job_id, "running")
    return job_id


async def test_first_lock_of_a_job_stays(cluster: SimulatedCluster) -> None:
    job_id = await running(cluster, environment={"requirements": ["einops"]})
    service = cluster.coordinator.environments
    assert await service.lock_of(job_id, 1) is None
    assert (await service.read(job_id)).locked_at is None
    with pytest.raises(NotFoundError):
        await service.requirements(job_id)
    other = LOCK.model_copy(update={"requirements": "einops==1"})
    assert [await service.store("n", job_id, 1, lock) for lock in (LOCK, other)] == [LOCK, LOCK]
    assert await service.lock_of(job_id, 1) == LOCK
    found = await service.read(job_id)
    assert (found.kind, found.packages, found.torch, found.attempt) == ("installed", 2, "host", 1)
    assert "secret" not in found.model_dump_json() + await service.requirements(job_id)
    await cluster.finish(job_id)
    with pytest.raises(ConflictError, match=r"attempt 1 of job .* is over"):
        await service.store("n", job_id, 1, LOCK)
    await cluster.coordinator.jobs.delete(job_id)


async def test_image_is_pinned_and_has_no_packages(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha", 2)
    job_id = await cluster.submit(environment={"image": "lab/train:1"})
    await cluster.heartbeat()
    assert "no container engine" in (await cluster.job(job_id)).reason
    node.container_engine = "podman 5.4.2"
    await cluster.heartbeat()
    await cluster.coordinator.gateway.flush_readings()
    await cluster.run_until(job_id, "running")
    service = cluster.coordinator.environments
    lock = EnvironmentLock(
        python="3.12", platform="linux-x86_64", torch="lock", image="lab/train@sha256:00",
        requirements="",
    )  # fmt: skip
    assert await service.store("n", job_id, 1, lock) == lock
    found = await service.read(job_id)
    assert (found.kind, found.image, found.packages) == ("image", "lab/train@sha256:00", 0)
    with pytest.raises(NotFoundError):
        await service.requirements(job_id)


async def test_job_without_environment_has_no_lock(cluster: SimulatedCluster) -> None:
    job_id = await running(cluster)
    service = cluster.coordinator.environments
    with pytest.raises(ConflictError, match="no environment to lock"):
        await service.store("n", job_id, 1, LOCK)
    assert (await service.read(job_id)).kind == "agent"
    with pytest.raises(NotFoundError):
        await service.lock_of(job_id, 2)


async def test_reason_says_what_a_host_prepares(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha", 1)
    job_id = await cluster.submit(environment={"requirements": ["einops"]})
    node.running(job_id).preparing = "installing 2 packages"
    await cluster.heartbeat()
    job = await cluster.job(job_id)
    assert (job.state, job.reason_code) == ("starting", "preparing")
    assert job.reason == "preparing on node alpha: installing 2 packages"
    node.running(job_id).preparing = None
    await cluster.run_until(job_id, "running")


async def test_reproduced_job_has_the_lock_of_the_first(cluster: SimulatedCluster) -> None:
    environment = {"requirements": ["einops"]}
    first = await running(cluster, environment=environment)
    service = cluster.coordinator.environments
    await service.store("n", first, 1, LOCK)
    again: dict[str, Any] = {"provenance": {"reproduces": first}}
    same = await cluster.submit(environment={**environment, "variables": {"A": "1"}}, **again)
    other = await cluster.submit(environment={"requirements": ["numpy"]}, **again)
    assert await service.requirements(same) == LOCK.requirements
    assert (await service.read(other)).locked_at is None
    await cluster.run_until(same, "running")
    assert await service.lock_of(same, 1) == LOCK
    found = await cluster.coordinator.jobs.provenance(same)
    assert found.reproduces == first
    with pytest.raises(NotFoundError):
        await cluster.submit(environment=environment, provenance={"reproduces": "0" * 12})
