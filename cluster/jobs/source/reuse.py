"""Reproducing a job: the new one uses the lock of the first one's environment."""

from sqlalchemy import inspect
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access.principal import Principal
from trainhall.cluster.access.roles import Action
from trainhall.cluster.access.visibility import check_job
from trainhall.cluster.service import load
from trainhall.db.models import Job
from trainhall.db.provenance import LockedEnvironment
from trainhall.training.spec.world.environment import EnvironmentSpec


async def reuse_lock(session: AsyncSession, caller: Principal, job: Job, first: str) -> None:
    """Give a new job the lock of another one; not if its environment is another.

    Args:
        first: id of the other job.

    Raises:
        ForbiddenError: the caller may not read the files of that job.
        NotFoundError: there is no such job that they see.
    """
    await check_job(session, caller, first, Action.READ_FILES)
    other = await load(session, Job, first)
    lock = await session.get(LockedEnvironment, first)
    if lock is None or _packages(job) != _packages(other):
        return
    values = {column.key: getattr(lock, column.key) for column in inspect(type(lock)).column_attrs}
    session.add(LockedEnvironment(**{**values, "job_id": job.id}))


def _packages(job: Job) -> EnvironmentSpec:
    """Return what decides on the packages of a job."""
    environment = EnvironmentSpec.model_validate(job.spec.get("environment") or {})
    return environment.model_copy(update={"variables": {}})
