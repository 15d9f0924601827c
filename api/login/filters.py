"""Owner and project by which routes filter their lists."""

from typing import Annotated

from fastapi import Depends, Query
from pydantic import AfterValidator

from trainhall.api.login.authentication import PrincipalDep
from trainhall.cluster.access.visibility import OwnerFilter
from trainhall.training.spec.base import one_line

ME = "me"
"""Stands for the caller where a user is named."""


def _one_line(value: str | None) -> str | None:
    return one_line(value) if value is not None else None


async def get_owner_filter(
    principal: PrincipalDep,
    user: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=128,
            description=f"Only those of this user; `{ME}` is you.",
            examples=["maria"],
        ),
        AfterValidator(_one_line),
    ] = None,
    project: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=128,
            description="Only those of this project.",
            examples=["vision"],
        ),
        AfterValidator(_one_line),
    ] = None,
) -> OwnerFilter:
    return OwnerFilter(principal.user if user == ME else user, project)


OwnerFilterDep = Annotated[OwnerFilter, Depends(get_owner_filter)]
