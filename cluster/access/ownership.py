"""The owner and the project of what a caller submits."""

from sqlalchemy import Connection, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access.names import check_unused, checked_name, composed
from trainhall.cluster.access.principal import Principal, who_gives_roles
from trainhall.cluster.access.roles import DEFAULT_PROJECT, Action
from trainhall.cluster.errors import ForbiddenError, InvalidValueError
from trainhall.cluster.ports import Clock
from trainhall.db.accounts import Project
from trainhall.training.spec import JobSpec

_NAMES = select(Project.name)


async def owned_spec(
    session: AsyncSession, caller: Principal, spec: JobSpec, clock: Clock
) -> JobSpec:
    """Return a spec as the coordinator keeps it: its user is the caller, its project one in which
    they may submit.

    The user that an admin gives counts; that of anybody else is replaced.

    Raises:
        ForbiddenError: the caller's role in the project is too low.
        InvalidValueError: there is no such project that they see, or none is given and there are
            several.
    """
    user = spec.user if caller.is_admin and spec.user is not None else caller.user or spec.user
    project = await submission_project(session, caller, spec.project, clock)
    return spec.model_copy(update={"user": user, "project": project})


async def hold_project(session: AsyncSession, project: str | None) -> None:
    """Keep a project from being deleted before this transaction ends.

    Raises:
        InvalidValueError: it was deleted.
    """
    if not await is_held(session, project):
        raise InvalidValueError("project", project, f"the project {project!r} was deleted")


async def is_held(session: AsyncSession, project: str | None) -> bool:
    """Return whether there is a project, which then is not deleted before this transaction ends."""
    held = select(Project.name).where(Project.name == project)
    return await session.scalar(held.with_for_update(read=True, key_share=True)) is not None


async def submission_project(
    session: AsyncSession, caller: Principal, given: str | None, clock: Clock
) -> str:
    """Return the project of what a caller submits.

    Args:
        given: None: they did not name one.

    Raises:
        as `owned_spec`
    """
    project = composed(given) if given else _default_project(caller)
    await check_project(session, caller, project, clock)
    if not caller.may(Action.SUBMIT, project):
        raise ForbiddenError(
            f"to submit to project {project} takes the role member; you have "
            f"{caller.roles[project]}; {who_gives_roles(project)}",
            project=project,
        )
    return project


def _default_project(caller: Principal) -> str:
    if caller.is_admin:
        return DEFAULT_PROJECT
    allowed = sorted(name for name in caller.roles if caller.may(Action.SUBMIT, name))
    if len(allowed) == 1:
        return allowed[0]
    choice = f"you may submit to {', '.join(allowed)}" if allowed else "you may submit to none yet"
    raise InvalidValueError("project", None, f"name the project; {choice}")


async def check_project(
    session: AsyncSession, caller: Principal, project: str, clock: Clock
) -> None:
    """Check that there is a project that the caller sees.

    Without accounts, a project is made when it is first named.

    Raises:
        ConflictError: a new name differs from another by case alone.
        InvalidValueError: there is none, or a new name is not allowed.
    """
    if not caller.is_admin and project in caller.roles:
        return
    if caller.is_admin and await session.get(Project, project) is not None:
        return
    if caller.is_admin and caller.how == "none":
        check_unused("project", checked_name(project, "project"), await session.scalars(_NAMES))
        values = {"name": project, "limits": {}, "created_at": clock.now()}

        def make(connection: Connection) -> None:
            # Another request may make it at the same time.
            dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
            made = dialect.insert(Project).values(values)
            connection.execute(made.on_conflict_do_nothing())

        await (await session.connection()).run_sync(make)
        return
    known = sorted(await session.scalars(_NAMES) if caller.is_admin else caller.roles)
    shown = ", ".join(known[:20]) or "none"
    raise InvalidValueError("project", project, f"there is no project {project!r}; known: {shown}")
