"""The secrets that count for a job: those of its owner, else those of its project."""

from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access.roles import DEFAULT_PROJECT
from trainhall.db.accounts import Secret, User
from trainhall.training.spec import JobSpec, SpecError
from trainhall.training.spec.document.errors import SpecProblem


async def stored_for(
    session: AsyncSession, names: Sequence[str], project: str, user: str | None
) -> Mapping[str, Secret]:
    """Return the secrets of these names that are set, by name.

    Args:
        user: name of the job's owner.
    """
    if not names:
        return {}
    owner = select(User.id).where(User.name == user, User.removed_at.is_(None))
    rows = await session.scalars(
        select(Secret)
        .where(
            Secret.name.in_(names),
            or_(Secret.project == project, Secret.user_id.in_(owner)),
        )
        .order_by(Secret.user_id.is_not(None))
    )
    return {row.name: row for row in rows}  # the user's replace the project's


async def check_secrets(session: AsyncSession, spec: JobSpec) -> None:
    """Check that the secrets of a job are set, before it is queued.

    Raises:
        SpecError: some are not.
    """
    project = spec.project or DEFAULT_PROJECT
    stored = await stored_for(session, spec.needed_secrets, project, spec.user)
    problems = [
        SpecProblem(field, missing(name, project), name)
        for field, name in _fields(spec)
        if name not in stored
    ]
    if problems:
        raise SpecError(problems)


def _fields(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Yield the fields that name secrets, with the names."""
    for index, name in enumerate(spec.secrets):
        yield f"secrets.{index}", name
    if spec.git_code is not None and spec.git_code.token is not None:
        yield "code.token", spec.git_code.token


def missing(name: str, project: str) -> str:
    """Return what to do about a secret that is not set."""
    return (
        f"is set neither for project {project} nor for the job's owner; set it with `trainhall "
        f"secrets set {name} --project {project}`, or --user for the owner's jobs alone"
    )
