"""/views: saved views of the list of jobs."""

from functools import partial
from typing import Annotated

from fastapi import Path, Request
from pydantic import AfterValidator

from trainhall.api.bodies import read_json
from trainhall.api.login.services import ServicesDep
from trainhall.api.openapi.describe import NO_VIEW, VIEW_EXISTS, Operations, body
from trainhall.api.params import Cursor, Limit, checked_reference
from trainhall.api.problems import invalid
from trainhall.api.schemas.jobs import NewView
from trainhall.cluster.jobs.listing.saved_views import SavedListView, SavedViewPage
from trainhall.cluster.pagination import page_of

router = Operations(prefix="/views", tags=["jobs"])

_EXAMPLE = {
    "name": "failed this week", "query": "state:failed created_at>=2026-11-20",
    "sort": "-gpu_hours", "columns": ["name", "user", "metrics.loss.min"], "pinned": 1,
}  # fmt: skip


@router.operation("GET", "", summary="List saved views", answer="A page of views.")
async def list_views(
    services: ServicesDep, limit: Limit = 1000, cursor: Cursor = None
) -> SavedViewPage:
    """Your views of the list of jobs, and those from before there were users, by name."""
    items, following = page_of("views", await services.views.list(), limit, cursor)
    return SavedViewPage(items=items, next_cursor=following)


@router.operation(
    "POST",
    "",
    VIEW_EXISTS,
    invalid("query", "lr>", "at character 4: expected a value after >"),
    summary="Save a view",
    answer="The view.",
    status=201,
    reads=body(NewView, {"view": _EXAMPLE}, required=True),
)
async def save_view(services: ServicesDep, request: Request) -> SavedListView:
    """Saves how the list of jobs is shown; what is left out is as by default."""
    wanted = await read_json(request, NewView)
    return await services.views.save(wanted.name, wanted.view())


@router.operation("DELETE", "/{name}", NO_VIEW, summary="Delete a view", status=204)
async def delete_view(
    services: ServicesDep,
    name: Annotated[
        str,
        Path(max_length=64, description="The view's name.", examples=["failed this week"]),
        AfterValidator(partial(checked_reference, "view")),
    ],
) -> None:
    """Deletes one of yours; an admin also one from before there were users."""
    await services.views.delete(name)
