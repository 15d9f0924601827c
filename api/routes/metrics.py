"""/metrics: a job's curves, and the cluster at a glance."""

from typing import Annotated

from fastapi import Query, Response

from trainhall.api.login.services import ServicesDep
from trainhall.api.openapi.describe import Operations
from trainhall.api.params import JobId, Sequence
from trainhall.api.problems import invalid
from trainhall.api.schemas.metrics import Metrics
from trainhall.api.schemas.series import encode_series
from trainhall.cluster.nodes.views import Summary
from trainhall.monitoring import metrics

router = Operations(prefix="/metrics", tags=["metrics"])

MAX_NAMES = 64
MAX_POINTS = 1_000_000


@router.operation(
    "GET",
    "/jobs/{job_id}",
    invalid("max_points", 0, "must be at least 1"),
    summary="Read a job's curves",
    answer="The series.",
    response_model=Metrics,
)
async def read_metrics(
    services: ServicesDep,
    job_id: JobId,
    names: Annotated[
        list[str] | None,
        Query(
            max_length=MAX_NAMES,
            description="Only these series, comma-separated or repeated; one without points, or "
            "an unknown one, is left out. Default: all.",
            examples=[["loss", "accuracy"]],
        ),
    ] = None,
    from_step: Annotated[Sequence | None, Query(description="First step.")] = None,
    to_step: Annotated[Sequence | None, Query(description="Last step.")] = None,
    max_points: Annotated[
        int, Query(ge=1, le=MAX_POINTS, description="At most this many points per series.")
    ] = 1000,
) -> Response:
    """Longer series are reduced to buckets with their smallest and largest value.

    So no spike is lost. On overlapping steps the newest valid attempt wins.
    """
    wanted = _split(names)
    await services.jobs.check(job_id)
    series = await metrics.read_metrics(
        services.unlimited.db,
        job_id,
        wanted,
        from_step=from_step,
        to_step=to_step,
        max_points=max_points,
    )
    return Response(await encode_series(series), media_type="application/json")


def _split(names: list[str] | None) -> list[str] | None:
    if names is None:
        return None
    found = [name.strip() for text in names for name in text.split(",") if name.strip()]
    if len(found) > MAX_NAMES:
        raise invalid("names", len(found), f"at most {MAX_NAMES} names")
    for name in found:
        if len(name) > 128 or not name.isprintable():
            raise invalid("names", name, "a series' name has at most 128 printable characters")
    return found


@router.operation(
    "GET", "/cluster/summary", summary="Read the summary of the cluster", answer="The summary."
)
async def read_summary(services: ServicesDep) -> Summary:
    """Nodes, devices, jobs by state, and how busy all of it is."""
    return await services.nodes.summary()
