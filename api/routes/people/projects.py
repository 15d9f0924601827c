"""/projects: projects, and the roles in them."""

from typing import Annotated, Literal

from fastapi import Query, Request

from trainhall.api.bodies import read_json
from trainhall.api.login.services import ServicesDep
from trainhall.api.openapi.describe import Operations, body
from trainhall.api.params import Cursor, Limit
from trainhall.api.problems import RefusalError
from trainhall.api.routes.people.params import (
    NO_PROJECT,
    NOT_ADMIN,
    NOT_MAINTAINER,
    MemberName,
    ProjectName,
    name_taken,
)
from trainhall.api.schemas.accounts import NewProject, NewRole, ProjectChange
from trainhall.cluster.projects.views import Project, ProjectMemberPage, ProjectPage

router = Operations(prefix="/projects", tags=["projects"])
_NOT_EMPTY = RefusalError(
    409, "conflict",
    "project vision has 12 jobs and 1 report; delete them first, or with the project: "
    "?contents=delete, `trainhall projects rm --with-contents`",
)  # fmt: skip
_OF_ANOTHER = RefusalError(409, "conflict", "ci-text is a service account of another project")
Contents = Annotated[
    Literal["delete"] | None,
    Query(description="`delete`: with its jobs, experiments and reports, which must have ended."),
]


@router.operation("GET", "", summary="List projects", answer="A page of projects.")
async def list_projects(
    services: ServicesDep, limit: Limit = 50, cursor: Cursor = None
) -> ProjectPage:
    """Projects by name: those in which you have a role, and for admins all."""
    return await services.projects.list(limit=limit, cursor=cursor)


@router.operation(
    "POST",
    "",
    NOT_ADMIN,
    name_taken("project", "Vision"),
    summary="Add a project",
    answer="The project.",
    status=201,
    reads=body(NewProject, {"project": {"name": "vision"}}, required=True),
)
async def create_project(services: ServicesDep, request: Request) -> Project:
    """Adds a project without members."""
    wanted = await read_json(request, NewProject)
    return await services.projects.create(wanted.name, wanted.limits)


@router.operation("GET", "/{name}", NO_PROJECT, summary="Read a project", answer="The project.")
async def get_project(services: ServicesDep, name: ProjectName) -> Project:
    """One project."""
    return await services.projects.get(name)


@router.operation(
    "PATCH",
    "/{name}",
    NOT_ADMIN,
    NO_PROJECT,
    summary="Change a project",
    answer="The project.",
    reads=body(ProjectChange, {"limits": {"limits": {"priority": 0}}}, required=True),
)
async def change_project(services: ServicesDep, name: ProjectName, request: Request) -> Project:
    """Changes the limits that are given. What was submitted before stays."""
    wanted = await read_json(request, ProjectChange)
    return await services.projects.change(name, wanted.limits)


@router.operation(
    "DELETE", "/{name}", NOT_ADMIN, NO_PROJECT, _NOT_EMPTY, summary="Delete a project", status=204
)
async def delete_project(
    services: ServicesDep, name: ProjectName, contents: Contents = None
) -> None:
    """Deletes it for good, with its roles, its service accounts, and the tokens that are narrowed
    to it."""
    await services.projects.delete(name, with_contents=contents == "delete")


@router.operation(
    "GET", "/{name}/members", NO_PROJECT, summary="List the members of a project",
    answer="A page of members.",
)  # fmt: skip
async def list_members(
    services: ServicesDep, name: ProjectName, limit: Limit = 50, cursor: Cursor = None
) -> ProjectMemberPage:
    """Groups first, then users, by name."""
    return await services.projects.members(name, limit=limit, cursor=cursor)


@router.operation(
    "PUT",
    "/{name}/members/{member}",
    NOT_MAINTAINER,
    NO_PROJECT,
    _OF_ANOTHER,
    summary="Set the role of a member",
    status=204,
    reads=body(NewRole, {"member": {"role": "member"}}, required=True),
)
async def set_member(
    services: ServicesDep, name: ProjectName, member: MemberName, request: Request
) -> None:
    """Adds a user or a group, or changes the role. It counts at once."""
    wanted = await read_json(request, NewRole)
    await services.projects.set_member(name, member, wanted.role)


@router.operation(
    "DELETE", "/{name}/members/{member}", NOT_MAINTAINER, NO_PROJECT,
    summary="Remove a member", status=204,
)  # fmt: skip
async def remove_member(services: ServicesDep, name: ProjectName, member: MemberName) -> None:
    """Takes the role away, within seconds. A user may still have one by a group."""
    await services.projects.remove_member(name, member)
