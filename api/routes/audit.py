"""/audit: who changed what, and who was refused."""

from typing import Annotated

from fastapi import Query
from pydantic import AfterValidator

from trainhall.api.login.services import ServicesDep
from trainhall.api.openapi.describe import Operations
from trainhall.api.params import Cursor, Limit, one_line_or_none
from trainhall.api.problems import RefusalError
from trainhall.api.schemas.times import Time
from trainhall.cluster.accounts.audit import AuditPage

router = Operations(prefix="/audit", tags=["accounts"])

_NO_PROJECT = RefusalError(404, "not-found", "there is no project 'vision'")


@router.operation(
    "GET",
    "",
    _NO_PROJECT,
    summary="Read the audit log",
    answer="A page of changes and refusals.",
)
async def list_audit(
    services: ServicesDep,
    limit: Limit = 50,
    cursor: Cursor = None,
    user: Annotated[
        str | None,
        Query(max_length=128, description="Only of this user.", examples=["maria"]),
        AfterValidator(one_line_or_none),
    ] = None,
    action: Annotated[
        str | None,
        Query(
            max_length=64,
            description="Only this action, such as `job.cancel`, or all on a kind of object, such "
            "as `job`.",
            examples=["job.cancel"],
        ),
        AfterValidator(one_line_or_none),
    ] = None,
    project: Annotated[
        str | None,
        Query(max_length=128, description="Only in this project.", examples=["vision"]),
        AfterValidator(one_line_or_none),
    ] = None,
    name: Annotated[
        str | None,
        Query(
            alias="object",
            max_length=255,
            description="Only on the object of this id or name.",
            examples=["3f2a9c51d07b"],
        ),
        AfterValidator(one_line_or_none),
    ] = None,
    since: Annotated[Time | None, Query(description="Only at this time or later.")] = None,
    until: Annotated[Time | None, Query(description="Only before this time.")] = None,
) -> AuditPage:
    """The newest first. An admin reads all of it, a maintainer that of their projects."""
    return await services.audit.list(
        limit=limit, cursor=cursor, user=user, action=action, project=project, name=name,
        since=since, until=until,
    )  # fmt: skip
