"""/users: people and service accounts."""

from typing import Annotated

from fastapi import Query, Request

from trainhall.api.bodies import read_json
from trainhall.api.login.services import ServicesDep
from trainhall.api.openapi.describe import Operations, body
from trainhall.api.params import Cursor, Limit
from trainhall.api.problems import RefusalError
from trainhall.api.routes.people.params import NO_USER, NOT_ADMIN, UserName, name_taken
from trainhall.api.schemas.accounts import NewUser, UserChange
from trainhall.cluster.accounts.users import UserChanges
from trainhall.cluster.accounts.views import User, UserPage

router = Operations(prefix="/users", tags=["projects"])
_LAST_ADMIN = RefusalError(
    409, "conflict", "maria is the last admin; make another user an admin first"
)
_WAIT = RefusalError(
    429, "too-many-requests", "too many wrong passwords; try again in 8 s",
    headers={"Retry-After": "8"},
)  # fmt: skip
_BUSY = RefusalError(
    429, "too-many-requests", "too many passwords are being checked; try again in 10 s",
    headers={"Retry-After": "10"},
)  # fmt: skip
Removed = Annotated[
    bool, Query(description="Those who were removed, in place of those who were not.")
]


@router.operation("GET", "", summary="List users", answer="A page of users.")
async def list_users(
    services: ServicesDep, limit: Limit = 50, cursor: Cursor = None, removed: Removed = False
) -> UserPage:
    """Users by name: the members of your projects, and for admins all."""
    return await services.users.list(limit=limit, cursor=cursor, removed=removed)


@router.operation(
    "POST",
    "",
    NOT_ADMIN,
    RefusalError(404, "not-found", "there is no project 'vision'"),
    name_taken("user", "Maria"),
    _BUSY,
    summary="Add a user",
    answer="The user.",
    status=201,
    reads=body(
        NewUser,
        {
            "person": {"name": "maria", "password": "correct horse battery"},
            "service account": {"name": "ci-vision", "kind": "service", "project": "vision"},
        },
        required=True,
    ),
)
async def create_user(services: ServicesDep, request: Request) -> User:
    """Adds a user without a role in any project. Admins add users, and the maintainers of a project
    its service accounts."""
    wanted = await read_json(request, NewUser)
    return await services.users.create(
        wanted.name,
        kind=wanted.kind,
        admin=wanted.admin,
        password=wanted.password,
        project=wanted.project,
    )


@router.operation(
    "PATCH",
    "/{name}",
    NOT_ADMIN,
    NO_USER,
    _LAST_ADMIN,
    _WAIT,
    summary="Change a user",
    answer="The user.",
    reads=body(
        UserChange,
        {
            "admin": {"admin": True},
            "own password": {"password": "a new long one", "old_password": "the old one"},
            "restore": {"removed": False},
        },
        required=True,
    ),
)
async def change_user(services: ServicesDep, name: UserName, request: Request) -> User:
    """Changes what is given. You change your own password; everything else is for admins."""
    wanted = await read_json(request, UserChange)
    return await services.users.change(name, UserChanges(**wanted.model_dump()))


@router.operation(
    "DELETE", "/{name}", NOT_ADMIN, NO_USER, _LAST_ADMIN, summary="Remove a user", status=204
)
async def remove_user(services: ServicesDep, name: UserName) -> None:
    """Ends their sessions, API tokens, roles and groups at once; their jobs continue. The name
    stays taken, and an admin can restore the user."""
    await services.users.remove(name)
