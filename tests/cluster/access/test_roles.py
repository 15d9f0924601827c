"""Roles: who may do what to what belongs to a project."""

from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from trainhall.cluster.access.principal import SYSTEM, Principal
from trainhall.cluster.access.roles import Action, Role
from trainhall.cluster.errors import ForbiddenError, NotFoundError

ALLOWED = {
    # role: (on what is another's, on what is their own)
    None: ("", ""),
    Role.VIEWER: ("read", "read"),
    Role.MEMBER: (
        "read, read files of, submit to, log to, write notes and tags on",
        "read, read files of, submit to, log to, write notes and tags on, change",
    ),
    Role.MAINTAINER: (", ".join(Action), ", ".join(Action)),
}


def principal(role: Role | None) -> Principal:
    roles = {"vision": role} if role is not None else {}
    return Principal("maria", False, "token", roles=MappingProxyType(roles))


def row(owner: str) -> Any:
    return SimpleNamespace(id="a1", project="vision", user=owner)


@pytest.mark.parametrize("role", list(ALLOWED))
def test_roles_allow_what_the_table_says(role: Role | None) -> None:
    caller = principal(role)
    for owner, allowed in zip(("ada", "maria"), ALLOWED[role], strict=True):
        assert ", ".join(a for a in Action if caller.may(a, "vision", owner)) == allowed
        assert not any(caller.may(action, "speech", owner) for action in Action)


def test_admins_and_the_coordinator_may_everything() -> None:
    for caller in (Principal("root", True, "session"), SYSTEM):
        assert all(caller.may(action, "vision", "ada") for action in Action)


def test_invisible_is_not_found_and_visible_is_forbidden() -> None:
    with pytest.raises(NotFoundError, match="there is no job 'a1'"):
        principal(None).check(Action.COMMAND, row("ada"), "job")
    with pytest.raises(ForbiddenError) as viewer:
        principal(Role.VIEWER).check(Action.READ_FILES, row("ada"), "job")
    assert viewer.value.message == (
        "to read files of job a1 in project vision takes the role member; you have viewer; a "
        "maintainer of vision or an admin can give it"
    )
    with pytest.raises(ForbiddenError, match="to change jobs of others in project vision takes"):
        principal(Role.MEMBER).check(Action.COMMAND, row("ada"), "job")
    principal(Role.MEMBER).check(Action.COMMAND, row("maria"), "job")
