"""Groups of runs: MLflow's experiments. Each belongs to a project."""

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access.ownership import hold_project, submission_project
from trainhall.cluster.access.principal import Principal
from trainhall.cluster.access.roles import Action
from trainhall.cluster.access.visibility import visible
from trainhall.cluster.errors import ConflictError, ForbiddenError, InvalidValueError, NotFoundError
from trainhall.cluster.ports import Clock
from trainhall.db.tracking.runs import RunGroup

DEFAULT_ID, DEFAULT_NAME = "0", "Default"
"""The group of runs that name none, in each project."""
MAX_NAME = 256
PROJECT_HEADER = "X-Trainhall-Project"
PROJECT_TAG = "trainhall.project"
_REMEDY = f"name it by the experiment's tag {PROJECT_TAG} or the header {PROJECT_HEADER}"


@dataclass(frozen=True)
class Group:
    """
    Args:
        project: None: the default group, which each project has.
    """

    id: str
    name: str
    project: str | None


DEFAULT = Group(DEFAULT_ID, DEFAULT_NAME, None)


async def get_group(session: AsyncSession, caller: Principal, group_id: str) -> Group:
    """
    Raises:
        NotFoundError: there is none that the caller sees.
    """
    if group_id == DEFAULT_ID:
        return DEFAULT
    is_number = group_id.isascii() and group_id.isdigit() and len(group_id) < 19
    row = await session.get(RunGroup, int(group_id)) if is_number else None
    if row is None:
        raise NotFoundError("experiment", group_id[:80])
    if not caller.may(Action.READ, row.project):
        raise NotFoundError("experiment", group_id, hidden_in=row.project)
    return _group(row)


async def find_group(
    session: AsyncSession, caller: Principal, name: str, project: str | None, clock: Clock
) -> Group:
    """Return the group with a name.

    Args:
        project: None: whichever of the caller's projects has it; of several the one to which they
            submit without naming one.

    Raises:
        InvalidValueError: several have it.
        NotFoundError: there is none that the caller sees.
    """
    if name == DEFAULT_NAME:
        return DEFAULT
    named = select(RunGroup).where(RunGroup.name == name, *visible(caller, RunGroup.project))
    if project is not None:
        named = named.where(RunGroup.project == project)
    rows = list(await session.scalars(named.order_by(RunGroup.project)))
    if not rows:
        raise NotFoundError("experiment", name[:160])
    if len(rows) == 1:
        return _group(rows[0])
    projects = [row.project for row in rows]
    try:
        own = await submission_project(session, caller, None, clock)
    except (ForbiddenError, InvalidValueError):
        own = ""
    if own not in projects:
        listed = ", ".join(projects[:20])
        message = f"the projects {listed} have an experiment {name!r}; {_REMEDY}"
        raise InvalidValueError("project", None, message)
    return _group(rows[projects.index(own)])


async def list_groups(session: AsyncSession, caller: Principal) -> list[Group]:
    """Return the groups that the caller sees, the newest first, and the default one."""
    found = select(RunGroup).where(*visible(caller, RunGroup.project))
    rows = await session.scalars(found.order_by(RunGroup.id.desc()))
    return [*map(_group, rows), DEFAULT]


async def add_group(
    session: AsyncSession, caller: Principal, name: str, project: str | None, clock: Clock
) -> Group:
    """
    Raises:
        ConflictError: the project has one of this name.
        ForbiddenError: the caller may not submit to the project.
        InvalidValueError: there is no such project, or none is given and there are several.
    """
    if len(name) > MAX_NAME or not name.isprintable():
        raise InvalidValueError("name", name[:80], f"must be 1 to {MAX_NAME} printable characters")
    project = await project_of(session, caller, project, clock)
    await hold_project(session, project)
    same = select(RunGroup.id).where(RunGroup.project == project, RunGroup.name == name)
    if name == DEFAULT_NAME or await session.scalar(same) is not None:
        raise ConflictError(f"project {project} has an experiment {name!r} already")
    row = RunGroup(project=project, name=name, created_at=clock.now())
    session.add(row)
    await session.flush()
    return _group(row)


async def project_of(
    session: AsyncSession, caller: Principal, project: str | None, clock: Clock
) -> str:
    """Return the project of what a caller logs; raise as `submission_project`."""
    try:
        return await submission_project(session, caller, project, clock)
    except InvalidValueError as error:
        if project is not None:
            raise
        message = f"{error.message.removeprefix('project: ')}; {_REMEDY}"
        raise InvalidValueError("project", None, message) from None


def _group(row: RunGroup) -> Group:
    return Group(str(row.id), row.name, row.project)
