"""/healthz, /readyz and /metrics: for those who keep the coordinator running."""

import asyncio
import shutil

from fastapi import APIRouter, Request
from prometheus_client import generate_latest
from sqlalchemy.exc import DBAPIError
from starlette.responses import PlainTextResponse

from trainhall import __version__
from trainhall.api.context import CoordinatorDep
from trainhall.api.login.authentication import PrincipalDep, principal_or_none
from trainhall.api.openapi.describe import (
    FAILED,
    FORBIDDEN,
    UNAUTHENTICATED,
    UNAVAILABLE,
    Responses,
    problem,
)
from trainhall.api.problems import RefusalError
from trainhall.api.schemas.probes import Health, Readiness
from trainhall.api.settings import Settings
from trainhall.cluster.accounts.service import METRICS_SCOPE
from trainhall.cluster.coordinator import Coordinator
from trainhall.monitoring import prometheus

router = APIRouter(tags=["probes"])

_MIN_FREE_BYTES = 1024 * 1024

_REFUSALS: Responses = {refusal.status: problem(refusal) for refusal in (FORBIDDEN, FAILED)}


@router.get(
    "/healthz",
    operation_id="readHealth",
    summary="Whether the process answers",
    responses=_REFUSALS,
)
async def read_health(request: Request) -> Health:
    """Asks nothing of the database."""
    return Health(status="ok", version=__version__, simulated=request.app.state.settings.mock)


@router.get(
    "/readyz",
    operation_id="readReadiness",
    summary="Whether the coordinator can serve",
    responses={
        503: problem(UNAVAILABLE),
        **_REFUSALS,
    },
)
async def read_readiness(request: Request, coordinator: CoordinatorDep) -> Readiness:
    """503 while the database cannot be read and written, or the disk with the data folder is
    full. The reason is for those who are logged in."""
    try:
        await _check(request.app.state.settings, coordinator)
    except (RefusalError, DBAPIError):
        if principal_or_none(request) is not None:
            raise
        raise RefusalError(503, "unavailable", "not ready") from None
    return Readiness(status="ready")


async def _check(settings: Settings, coordinator: Coordinator) -> None:
    if not settings.mock:
        free = (await asyncio.to_thread(shutil.disk_usage, settings.data_dir)).free
        if free < _MIN_FREE_BYTES:
            raise RefusalError(
                503, "unavailable",
                f"the disk with the data folder is full, {free >> 10} KiB are left: free some",
            )  # fmt: skip
    await coordinator.db.check()


@router.get(
    "/metrics",
    operation_id="readPrometheus",
    summary="Figures for Prometheus",
    response_class=PlainTextResponse,
    responses={
        401: problem(UNAUTHENTICATED),
        200: {"content": {"text/plain": {"example": 'trainhall_jobs{state="running"} 3\n'}}},
        503: problem(UNAVAILABLE),
        **_REFUSALS,
    },
)
async def read_prometheus(
    request: Request, coordinator: CoordinatorDep, caller: PrincipalDep
) -> PlainTextResponse:
    """Text exposition format: the cluster's figures, and the coordinator's own; for admins, and for
    API tokens with the scope `metrics`."""
    if METRICS_SCOPE not in caller.scopes:
        caller.check_admin(f"read these figures without a token of scope {METRICS_SCOPE}")
    own = generate_latest(request.app.state.figures.registry)
    text = await prometheus.exposition(coordinator.db, coordinator.clock.now()) + own
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")
