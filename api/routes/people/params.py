"""Parameters of the routes of users, groups and projects, and what they are refused with."""

from functools import partial
from typing import Annotated

from fastapi import Path
from pydantic import AfterValidator

from trainhall.api.params import checked_reference
from trainhall.api.problems import RefusalError
from trainhall.cluster.access.names import MAX_NAME


def _name(kind: str, example: str) -> object:
    what = f"The {kind}'s name."
    return Path(min_length=1, max_length=MAX_NAME, description=what, examples=[example])


def _printable(kind: str) -> AfterValidator:
    return AfterValidator(partial(checked_reference, kind))


UserName = Annotated[str, _name("user", "maria"), _printable("user")]
GroupName = Annotated[str, _name("group", "vision-lab"), _printable("group")]
ProjectName = Annotated[str, _name("project", "vision"), _printable("project")]
MemberName = Annotated[
    str,
    Path(
        min_length=1,
        max_length=MAX_NAME + len("group:"),
        description="Name of a user, or `group:NAME`.",
        examples=["group:vision-lab"],
    ),
    _printable("member"),
]

NOT_ADMIN = RefusalError(403, "not-allowed", "to add users takes an admin; admins can make you one")
NOT_MAINTAINER = RefusalError(
    403,
    "not-allowed",
    "to change members takes the role maintainer in project vision; you have member; a maintainer "
    "of vision or an admin can give it",
)
NO_USER = RefusalError(404, "not-found", "there is no user 'maria'")
NO_GROUP = RefusalError(404, "not-found", "there is no group 'vision-lab'")
NO_PROJECT = RefusalError(404, "not-found", "there is no project 'vision'")


def name_taken(kind: str, name: str) -> RefusalError:
    detail = f"there is a {kind} {name!r} already; use another name"
    return RefusalError(409, "conflict", detail)
