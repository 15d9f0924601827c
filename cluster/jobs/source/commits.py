"""Commits of jobs whose code is in git: the first host that resolves one fixes it for the job."""

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.errors import ConflictError
from trainhall.cluster.lifecycle.attempts import load_job_of_active
from trainhall.cluster.lifecycle.jobs import lock_job
from trainhall.cluster.service import Service
from trainhall.db.experiments import Experiment
from trainhall.db.models import Job, Node
from trainhall.db.provenance import JobCommit
from trainhall.training.spec.source.git_code import GitCode, git_code_of


class CommitService(Service):
    async def of_attempt(self, node_id: str, job_id: str, attempt: int) -> str | None:
        """Return the commit that an attempt uses; None: no host has resolved it yet.

        Runs of an experiment with the same `ref` use one commit, which is then fixed for this job,
        too: it stays when the run that resolved it is deleted.

        Raises:
            ConflictError: the attempt is over, or the job's code is not in git.
            NotFoundError: there is no such attempt.
        """
        async with self._db.session() as session:
            job, code = await _check(session, job_id, attempt)
            found = await session.get(JobCommit, job_id)
            if found is None:
                found = await _of_experiment(session, job, code)
            if found is None or found.job_id == job_id:
                return found.commit if found is not None else None
        return await self.pin(node_id, job_id, attempt, found.commit)

    async def pin(self, node_id: str, job_id: str, attempt: int, commit: str) -> str:
        """Fix a job to a commit unless it is fixed already; return the job's commit.

        Raises:
            ConflictError, NotFoundError: as `of_attempt`.
        """
        async with self._db.transaction() as session:
            job = await session.get(Job, job_id)
            if job is not None and job.experiment_id is not None:
                # Other runs may resolve it at the same time. Before the job's own lock: whoever
                # advances the experiment takes the two in this order.
                await session.get(Experiment, job.experiment_id, with_for_update=True)
            await lock_job(session, job_id)
            job, code = await _check(session, job_id, attempt)
            row = await session.get(JobCommit, job_id)
            if row is None:
                before = await _of_experiment(session, job, code)
                node = await session.get(Node, node_id)
                row = JobCommit(
                    job_id=job_id,
                    url=code.git,
                    ref=code.ref,
                    commit=before.commit if before is not None else commit,
                    node=node.name if node is not None else node_id,
                    attempt=attempt,
                    pinned_at=self._clock.now(),
                )
                session.add(row)
            return row.commit


async def _check(session: AsyncSession, job_id: str, attempt: int) -> tuple[Job, GitCode]:
    job = await load_job_of_active(session, job_id, attempt)
    code = git_code_of(job.spec)
    if code is None:
        raise ConflictError(f"the code of job {job_id} is not in git")
    return job, code


async def _of_experiment(session: AsyncSession, job: Job, code: GitCode) -> JobCommit | None:
    """Return the commit that an earlier run of the job's experiment has for the same `ref`."""
    if job.experiment_id is None:
        return None
    runs = (
        select(JobCommit)
        .join(Job, Job.id == JobCommit.job_id)
        .where(Job.experiment_id == job.experiment_id)
        .where(JobCommit.url == code.git, JobCommit.ref == code.ref)
        .order_by(JobCommit.pinned_at, JobCommit.job_id)
        .limit(1)
    )
    found: JobCommit | None = await session.scalar(runs)
    return found
