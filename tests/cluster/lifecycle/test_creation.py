"""Jobs and experiments that several requests create, at once and with the same key."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.cluster.simulated import SimulatedCluster, spec

from trainhall.cluster.coordinator import Coordinator
from trainhall.cluster.errors import ConflictError, InvalidValueError
from trainhall.cluster.experiments.spec import validate_experiment
from trainhall.cluster.lifecycle.creation import RequestKey

SWEEP = {
    "name": "rates",
    "kind": "sweep",
    "job": {"name": "digits", "task": {"name": "synthetic"}},
    "space": {"training.learning_rate": [0.1, 0.2]},
    "method": "grid",
    "objective": {"metric": "eval_accuracy"},
}
KEY = RequestKey("key", "a" * 64)
OTHER_BODY = RequestKey("key", "b" * 64)

Create = Callable[[Coordinator, RequestKey | None], Awaitable[tuple[Any, bool]]]


async def submit(coordinator: Coordinator, request: RequestKey | None) -> tuple[Any, bool]:
    return await coordinator.jobs.submit(spec(), request)


async def sweep(coordinator: Coordinator, request: RequestKey | None) -> tuple[Any, bool]:
    return await coordinator.experiments.create(validate_experiment(SWEEP), request)


@pytest.fixture(params=[submit, sweep])
def create(request: pytest.FixtureRequest) -> Create:
    made: Create = request.param
    return made


@pytest.mark.side_by_side
async def test_concurrent_requests_with_one_key_create_once(
    cluster: SimulatedCluster, create: Create
) -> None:
    coordinator = cluster.coordinator
    results = await asyncio.gather(*(create(coordinator, KEY) for _ in range(8)))
    assert len({view.id for view, _ in results}) == 1
    assert sum(created for _, created in results) == 1
    name = results[0][0].name
    with pytest.raises(ConflictError, match=f"another body, of “{name}” .*; use a new key"):
        await create(coordinator, OTHER_BODY)
    for bad in ("", "x" * 256):
        with pytest.raises(InvalidValueError, match="Idempotency-Key"):
            await create(coordinator, RequestKey(bad, "b" * 64))


@pytest.mark.side_by_side
async def test_two_coordinators_create_once_per_key(
    cluster: SimulatedCluster, create: Create
) -> None:
    first = cluster.coordinator
    cluster.start_coordinator()
    results = await asyncio.gather(
        *(create(c, KEY) for c in (first, cluster.coordinator) * 4),
        *(create(c, None) for c in (first, cluster.coordinator) * 4),
    )
    assert len({view.id for view, _ in results[:8]}) == 1
    assert len({view.id for view, _ in results}) == 9


async def test_key_of_a_job_creates_no_experiment(cluster: SimulatedCluster) -> None:
    job, _ = await submit(cluster.coordinator, KEY)
    with pytest.raises(ConflictError, match=f"another body, of “test” \\({job.id}\\)"):
        await sweep(cluster.coordinator, KEY)
    experiment, _ = await sweep(cluster.coordinator, RequestKey("sweep", "a" * 64))
    with pytest.raises(ConflictError, match=f"of “rates” \\(experiment {experiment.id}\\)"):
        await submit(cluster.coordinator, RequestKey("sweep", "a" * 64))
