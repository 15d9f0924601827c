"""/groups: users who have roles together."""

from fastapi import Request

from trainhall.api.bodies import read_json
from trainhall.api.login.services import ServicesDep
from trainhall.api.openapi.describe import Operations, body
from trainhall.api.params import Cursor, Limit
from trainhall.api.problems import RefusalError
from trainhall.api.routes.people.params import (
    NO_GROUP,
    NOT_ADMIN,
    GroupName,
    UserName,
    name_taken,
)
from trainhall.api.schemas.accounts import NewGroup
from trainhall.cluster.accounts.views import Group, GroupMemberPage, GroupPage

router = Operations(prefix="/groups", tags=["projects"])
_OF_PROJECT = RefusalError(
    409, "conflict", "ci-vision is a service account of project vision, and has roles there alone"
)


@router.operation("GET", "", summary="List groups", answer="A page of groups.")
async def list_groups(services: ServicesDep, limit: Limit = 50, cursor: Cursor = None) -> GroupPage:
    """Groups by name: yours, and those of your projects; for admins all."""
    return await services.groups.list(limit=limit, cursor=cursor)


@router.operation(
    "POST",
    "",
    NOT_ADMIN,
    name_taken("group", "Vision-Lab"),
    summary="Add a group",
    answer="The group.",
    status=201,
    reads=body(NewGroup, {"group": {"name": "vision-lab"}}, required=True),
)
async def create_group(services: ServicesDep, request: Request) -> Group:
    """Adds a group without members."""
    wanted = await read_json(request, NewGroup)
    return await services.groups.create(wanted.name)


@router.operation("DELETE", "/{group}", NOT_ADMIN, NO_GROUP, summary="Delete a group", status=204)
async def delete_group(services: ServicesDep, group: GroupName) -> None:
    """Its members lose the roles that they have by it."""
    await services.groups.delete(group)


@router.operation(
    "GET", "/{group}/members", NO_GROUP, summary="List the members of a group",
    answer="A page of users.",
)  # fmt: skip
async def list_group_members(
    services: ServicesDep, group: GroupName, limit: Limit = 50, cursor: Cursor = None
) -> GroupMemberPage:
    """Users by name."""
    return await services.groups.members(group, limit=limit, cursor=cursor)


@router.operation(
    "PUT", "/{group}/members/{user}", NOT_ADMIN, NO_GROUP, _OF_PROJECT,
    summary="Add a user to a group", status=204,
)  # fmt: skip
async def add_group_member(services: ServicesDep, group: GroupName, user: UserName) -> None:
    """Gives the user the roles of the group, at once."""
    await services.groups.add_member(group, user)


@router.operation(
    "DELETE", "/{group}/members/{user}", NOT_ADMIN, NO_GROUP,
    summary="Remove a user from a group", status=204,
)  # fmt: skip
async def remove_group_member(services: ServicesDep, group: GroupName, user: UserName) -> None:
    """Takes the roles of the group from the user, within seconds."""
    await services.groups.remove_member(group, user)
