"""Limits of a project: what its members may ask for."""

from collections.abc import Iterator
from pathlib import PurePosixPath
from posixpath import normpath
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access.principal import Principal
from trainhall.cluster.errors import InvalidValueError
from trainhall.db.accounts import Project
from trainhall.documented import Documented
from trainhall.training.spec import JobSpec
from trainhall.training.spec.tasks import paths_in


class ProjectLimits(Documented, BaseModel):
    """Limits of a project; null: none. Admins have none."""

    model_config = ConfigDict(extra="forbid")

    priority: Annotated[int, Field(strict=True, ge=-1_000_000, le=1_000_000)] | None = None
    """Highest `priority` of its jobs; that of a new project is 0."""
    devices: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] | None = None
    """Most devices of one of its jobs; quotas limit what it holds at once."""
    paths: (
        Annotated[
            list[Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^/[^\x00]*$")]],
            Field(max_length=64),
        ]
        | None
    ) = None
    """Folders of hosts under which `checkpoint.path`, `code`, scripts, interpreters and data may
    lie; a new project has none, so that its jobs use uploaded code and their own folders."""


LIMITS_OF_NEW = ProjectLimits(priority=0, paths=[])
"""Limits of a project for which no others are given."""


async def limits_for(
    session: AsyncSession, caller: Principal, project: str | None
) -> ProjectLimits | None:
    """Return the limits that a caller has in a project; None: none."""
    if caller.is_admin or project is None:
        return None
    row = await session.get(Project, project)
    limits = row.effective_limits if row is not None else None
    return ProjectLimits.model_validate(limits) if limits else None


def check_limits(limits: ProjectLimits | None, spec: JobSpec) -> None:
    """Check that a job is within the limits of its project.

    Raises:
        InvalidValueError: it is not.
    """
    if limits is None:
        return
    if limits.priority is not None and spec.priority > limits.priority:
        message = f"is above {limits.priority}, the highest priority in project {spec.project}"
        change = f"priority={spec.priority}"
        raise _beyond("priority", str(spec.priority), message, spec, change)
    _check_devices(limits, spec)
    if limits.paths is None:
        return
    for field, path in _host_paths(spec):
        if not any(_is_under(path, folder) for folder in limits.paths):
            allowed = ", ".join(limits.paths) or "none, only uploaded code"
            message = f"is not under a folder that project {spec.project} may use ({allowed})"
            raise _beyond(field, path, message, spec, "paths=[FOLDER, …]")


def check_size(limits: ProjectLimits | None, spec: JobSpec, before: dict[str, Any]) -> None:
    """Check that a job that takes another number of workers is within the limits of its project.

    Args:
        before: its spec until now.

    Raises:
        InvalidValueError: it is not.
    """
    if limits is not None and spec.resources.workers > before["resources"]["workers"]:
        _check_devices(limits, spec)


def _check_devices(limits: ProjectLimits, spec: JobSpec) -> None:
    workers = spec.resources.workers  # of an elastic job the most
    if limits.devices is not None and workers > limits.devices:
        message = f"is above {limits.devices}, the most devices of a job in project {spec.project}"
        raise _beyond("resources.workers", str(workers), message, spec, f"devices={workers}")


def _host_paths(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Yield the fields of a spec that name a place on hosts, and their values."""
    given: list[tuple[str, Any]] = [("checkpoint.path", spec.checkpoint.path)]
    given.append(("code", spec.code_folder))
    if spec.git_code is not None:
        given.append(("code.git", spec.git_code.path_on_host))
    if spec.script is not None:
        fields = ("path", "working_dir", "interpreter")
        given += [(f"script.{name}", getattr(spec.script, name)) for name in fields]
    if spec.task is not None:
        given += [(f"task.params.{name}", each) for name, each in paths_in(spec.task.params)]
    given += [(f"data.{i}.path", each.path) for i, each in enumerate(spec.data)]
    for field, value in given:
        # What is relative lies in uploaded code, or is found on the node's PATH.
        if isinstance(value, str) and PurePosixPath(value).is_absolute():
            yield field, value


def _is_under(path: str, folder: str) -> bool:
    # Not against links, which only a node can follow.
    return _plain(path).is_relative_to(_plain(folder))


def _plain(path: str) -> PurePosixPath:
    return PurePosixPath("/" + normpath(path).lstrip("/"))


def _beyond(field: str, value: str, message: str, spec: JobSpec, change: str) -> InvalidValueError:
    command = f"trainhall projects set {spec.project} --limit '{change}'"
    return InvalidValueError(field, value, f"{message}; an admin can change that: `{command}`")
