"""Requests that wait for a coordinator which is away."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from trainhall.cluster.agent.coordinator_link.http_api import UnavailableError
from trainhall.cluster.backoff import Backoff
from trainhall.training.event_log import EventLogger

logger = EventLogger(__name__)
T = TypeVar("T")

RETRY_LIMIT_SECONDS = 10.0


async def until_answered(ask: Callable[[], Awaitable[T]], job_id: str) -> T:
    """Repeat a request until the coordinator answers it.

    Raises:
        RefusedError: it refuses the request.
    """
    backoff = Backoff(0.1, RETRY_LIMIT_SECONDS)
    while True:
        try:
            return await ask()
        except UnavailableError as error:
            logger.warning("launch_waits", job=job_id, error=error)
            await asyncio.sleep(backoff.next())
