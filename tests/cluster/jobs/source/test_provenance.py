"""Provenance is kept beside the spec, shown by role, and deleted with the job."""

from typing import Any

from sqlalchemy import func, select
from support.cluster.simulated import SimulatedCluster

from trainhall.cluster.access.principal import Principal
from trainhall.cluster.access.roles import Role
from trainhall.db.provenance import JobProvenance
from trainhall.training.spec.parse import validate_spec

GIT = {"commit": "a" * 40, "branch": "main", "dirty": True, "diff": "+print(2)"}
SPEC: dict[str, Any] = {
    "name": "digits",
    "task": {"name": "digits"},
    "training": {"steps": 5},
    "provenance": {"git": GIT, "command": ["trainhall", "submit", "--token", "hunter2"]},
}


async def test_provenance_lives_as_long_as_the_job(cluster: SimulatedCluster) -> None:
    service = cluster.coordinator.jobs
    job, _ = await service.submit(validate_spec(SPEC))
    assert "provenance" not in (job.spec or {})
    found = await service.provenance(job.id)
    assert found.command == ["trainhall", "submit", "--token", "***"]
    assert found.git is not None
    assert found.git.model_dump(include=set(GIT)) == GIT
    roles = {job.project: Role.VIEWER}
    viewer = Principal(user="eve", is_admin=False, how="token", roles=roles)
    shown = (await service.limited_to(viewer).provenance(job.id)).git
    assert shown is not None
    assert (shown.commit, shown.diff) == (GIT["commit"], None)
    await service.cancel(job.id)
    await service.delete(job.id)
    async with cluster.db.session() as session:
        assert await session.scalar(select(func.count()).select_from(JobProvenance)) == 0


async def test_job_without_provenance_has_none(cluster: SimulatedCluster) -> None:
    job_id = await cluster.submit()
    found = await cluster.coordinator.jobs.provenance(job_id)
    assert (found.git, found.command) == (None, None)
