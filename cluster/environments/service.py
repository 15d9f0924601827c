"""Storing and reading locks of environments."""

import hashlib

from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access.visibility import check_job
from trainhall.cluster.environments.views import JobEnvironment, environment_view, kind_of
from trainhall.cluster.errors import ConflictError, NotFoundError
from trainhall.cluster.lifecycle.attempts import load_job_of_active
from trainhall.cluster.lifecycle.jobs import lock_job
from trainhall.cluster.service import Service, load
from trainhall.cluster.wire.environment_lock import EnvironmentLock
from trainhall.db.models import Job, Node
from trainhall.db.provenance import LockedEnvironment
from trainhall.db.sanitize import sanitize_text


class EnvironmentService(Service):
    async def lock_of(self, job_id: str, attempt: int) -> EnvironmentLock | None:
        """Return a job's lock for an attempt of it; None: no host has made one.

        Raises:
            ConflictError: the attempt is over, or the job has no environment of its own.
            NotFoundError: there is no such attempt.
        """
        async with self._db.session() as session:
            await _check_active(session, job_id, attempt)
            row = await session.get(LockedEnvironment, job_id)
            return EnvironmentLock.model_validate(row, from_attributes=True) if row else None

    async def store(
        self, node_id: str, job_id: str, attempt: int, lock: EnvironmentLock
    ) -> EnvironmentLock:
        """Make a lock the job's unless it has one; return the job's.

        Raises:
            ConflictError, NotFoundError: as `lock_of`.
        """
        async with self._db.transaction() as session:
            await lock_job(session, job_id)
            await _check_active(session, job_id, attempt)
            row = await session.get(LockedEnvironment, job_id)
            if row is None:
                node = await session.get(Node, node_id)
                row = LockedEnvironment(
                    job_id=job_id,
                    sha256=hashlib.sha256(lock.requirements.encode()).hexdigest(),
                    python=lock.python,
                    platform=lock.platform,
                    torch=lock.torch,
                    image=lock.image,
                    requirements=sanitize_text(lock.requirements, len(lock.requirements)),
                    options=list(lock.options),
                    packages=lock.packages,
                    node=node.name if node is not None else node_id,
                    attempt=attempt,
                    locked_at=self._clock.now(),
                )
                session.add(row)
                await session.flush()
            return EnvironmentLock.model_validate(row, from_attributes=True)

    async def read(self, job_id: str) -> JobEnvironment:
        """Return the environment of a job, and its lock as far as there is one."""
        async with self._db.session() as session:
            await check_job(session, self._caller, job_id)
            job = await load(session, Job, job_id)
            return environment_view(job.spec, await session.get(LockedEnvironment, job_id))

    async def requirements(self, job_id: str) -> str:
        """Return the text of a job's lock.

        Raises:
            NotFoundError: it has none (or an image), or there is no such job that the caller sees.
        """
        async with self._db.session() as session:
            await check_job(session, self._caller, job_id)
            row = await session.get(LockedEnvironment, job_id)
            if row is None or row.image is not None:
                raise NotFoundError("locked packages", f"of job {job_id}")
            return row.requirements


async def _check_active(session: AsyncSession, job_id: str, attempt: int) -> None:
    job = await load_job_of_active(session, job_id, attempt)
    spec = job.spec.get("environment") or {}
    if kind_of(spec) == "agent":
        raise ConflictError(f"the spec of job {job_id} has no environment to lock")
