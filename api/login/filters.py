"""Owner and project by which routes filter their lists."""

from typing import Annotated

from fastapi import Depends, Query
from pydantic import AfterValidator

from trainhall.api.login.authentication import PrincipalDep
from trainhall.api.params import one_line_or_none
from trainhall.cluster.access.visibility import OwnerFilter

ME = "me"
"""Stands for the caller where a user is named."""


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
        AfterValidator(one_line_or_none),
    ] = None,
    project: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=128,
            description="Only those of this project.",
            examples=["vision"],
        ),
        AfterValidator(one_line_or_none),
    ] = None,
) -> OwnerFilter:
    return OwnerFilter(principal.user if user == ME else user, project)


OwnerFilterDep = Annotated[OwnerFilter, Depends(get_owner_filter)]
