"""Provenance of jobs: kept beside their specs, since it is large and never changes."""

from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.db.provenance import JobProvenance
from trainhall.db.views import View
from trainhall.training.spec.source.provenance import GitState, ProvenanceSpec


class Provenance(View):
    """Repository and command that a job was submitted from; both are null where the client sent
    none, as the dashboard and curl."""

    git: GitState | None
    """State of the repository; its diff is null to those who may not read the project's code."""
    command: list[str] | None
    """Command line, what looks like a secret in it masked."""


def store_provenance(session: AsyncSession, job_id: str, provenance: ProvenanceSpec) -> None:
    """Store the provenance of a new job."""
    session.add(JobProvenance(job_id=job_id, provenance=provenance.model_dump(mode="json")))


async def read_provenance(session: AsyncSession, job_id: str, *, with_diff: bool) -> Provenance:
    """Return where a job comes from.

    Args:
        with_diff: False: leave out uncommitted changes, which are code.
    """
    row = await session.get(JobProvenance, job_id)
    if row is None:
        return Provenance(git=None, command=None)
    found = ProvenanceSpec.model_validate(row.provenance)
    git = found.git
    if git is not None and not with_diff:
        git = git.model_copy(update={"diff": None})
    return Provenance(git=git, command=found.command or None)
