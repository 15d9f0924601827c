"""Provenance of jobs: kept beside their specs, since it is large and never changes."""

from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.db.models import Job
from trainhall.db.provenance import JobCommit, JobProvenance
from trainhall.db.views import View
from trainhall.training.spec.source.git_code import git_code_of
from trainhall.training.spec.source.provenance import GitState, ProvenanceSpec


class Provenance(View):
    """Repository and command that a job comes from; both are null where the client sent none, as
    the dashboard, experiments and curl. Of code in git it is the commit that hosts cloned."""

    git: GitState | None
    """State of the repository; its diff is null to those who may not read the project's code."""
    command: list[str] | None
    """Command line, what looks like a secret in it masked."""
    reproduces: str | None
    """Id of the job that it reproduces."""


def store_provenance(session: AsyncSession, job_id: str, provenance: ProvenanceSpec) -> None:
    """Store the provenance of a new job."""
    session.add(JobProvenance(job_id=job_id, provenance=provenance.model_dump(mode="json")))


async def read_provenance(session: AsyncSession, job_id: str, *, with_diff: bool) -> Provenance:
    """Return where a job comes from.

    Args:
        with_diff: False: leave out uncommitted changes, which are code.
    """
    row = await session.get(JobProvenance, job_id)
    found = ProvenanceSpec.model_validate(row.provenance if row is not None else {})
    git = await _cloned(session, job_id) or found.git
    if git is not None and not with_diff:
        git = git.model_copy(update={"diff": None})
    return Provenance(git=git, command=found.command or None, reproduces=found.reproduces)


async def _cloned(session: AsyncSession, job_id: str) -> GitState | None:
    """Return what hosts cloned; None: nothing, or not yet."""
    row = await session.get(JobCommit, job_id)
    job = await session.get(Job, job_id)
    code = git_code_of(job.spec) if job is not None else None
    if row is None or code is None:
        return None
    branch = code.ref if code.ref not in ("HEAD", row.commit) else None
    return GitState(commit=row.commit, branch=branch, remote=code.git)
