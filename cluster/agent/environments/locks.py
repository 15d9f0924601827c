"""Locks of environments at the coordinator."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeVar

from trainhall.cluster.agent.coordinator_link.http_api import RefusedError
from trainhall.cluster.agent.coordinator_link.retry import until_answered
from trainhall.cluster.agent.environments.locking import host_platform
from trainhall.cluster.agent.environments.uv import EnvironmentFailedError
from trainhall.cluster.wire.environment_lock import EnvironmentLock
from trainhall.training.link.failure import Cause
from trainhall.training.link.launch import Launch

T = TypeVar("T")


class Locks(Protocol):
    """The coordinator's part; tests have their own."""

    async def get_environment(self, job_id: str, attempt: int) -> EnvironmentLock | None: ...

    async def put_environment(
        self, job_id: str, attempt: int, lock: EnvironmentLock
    ) -> EnvironmentLock: ...


async def lock_of(
    api: Locks, launch: Launch, make: Callable[[], Awaitable[EnvironmentLock]]
) -> EnvironmentLock:
    """Return the lock of a job, made first if no host has made it. While the coordinator is away
    it is asked again.

    Raises:
        EnvironmentFailedError: it refuses.
    """
    token = launch.job_id, launch.attempt
    lock = await _answered(launch, partial(api.get_environment, *token))
    if lock is None:
        lock = await _answered(launch, partial(api.put_environment, *token, await make()))
    return lock


def check_host(lock: EnvironmentLock) -> None:
    """Check that a lock is for hosts of this kind.

    Raises:
        EnvironmentFailedError: it is not.
    """
    if lock.platform != host_platform():
        raise EnvironmentFailedError(
            f"its lock is for hosts of the kind {lock.platform}, and this one is {host_platform()}",
            cause=Cause.NOT_STARTED,
        )


async def _answered(launch: Launch, ask: Callable[[], Awaitable[T]]) -> T:
    try:
        return await until_answered(ask, launch.job_id)
    except RefusedError as error:
        raise EnvironmentFailedError(
            f"the coordinator refused its lock: {error.detail}", cause=Cause.NOT_STARTED
        ) from None
