"""Python environments of attempts: stored once, read by attempt, deleted with the last job."""

import asyncio
from typing import Any

import pytest
from pydantic import ValidationError
from sqlalchemy import func, select
from support.cluster.simulated import SimulatedCluster

from trainhall.cluster.jobs.source import packages as environments
from trainhall.cluster.wire.protocol import first_problem
from trainhall.db.database import Database
from trainhall.db.models import Attempt, PackageSet
from trainhall.training.link.packages import MAX_PACKAGES, Packages

REPORT: dict[str, Any] = {
    "python": "3.12.3",
    "os": "Linux",
    "cuda": "12.6",
    "driver": "550.54.15",
    "packages": {"torch": "2.12.0+cu126", "numpy": "2.3.3"},
}


async def running(cluster: SimulatedCluster) -> str:
    job_id = await cluster.submit()
    await cluster.run_until(job_id, "running")
    return job_id


async def stored(cluster: SimulatedCluster) -> int:
    async with cluster.db.session() as session:
        return await session.scalar(select(func.count()).select_from(PackageSet)) or 0


async def test_equal_environments_are_stored_once(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 2)
    jobs = [await running(cluster), await running(cluster)]
    service = cluster.coordinator.jobs
    assert (await service.packages(jobs[0])).attempt is None
    await cluster.report_event(jobs[0], "packages", REPORT | {"python": None})
    assert await stored(cluster) == 0
    for job_id in jobs:
        packages = dict(sorted(REPORT["packages"].items()))
        await cluster.report_event(job_id, "packages", REPORT | {"packages": packages})
    assert await stored(cluster) == 1
    found = await service.packages(jobs[1])
    assert found.model_dump() == {"attempt": 1, "host": "alpha", **REPORT}
    assert (await service.packages(jobs[1], attempt=2)).packages == {}
    # The rank was replaced by one on another host.
    await cluster.report_event(jobs[1], "packages", REPORT | {"python": "3.13.1"})
    assert await stored(cluster) == 2
    assert [(await service.packages(job_id)).python for job_id in jobs] == ["3.12.3", "3.13.1"]
    await cluster.report_event(jobs[1], "packages", REPORT)
    assert await stored(cluster) == 1
    for job_id, left in zip(jobs, [1, 0], strict=True):
        await cluster.finish(job_id)
        await service.delete(job_id)
        assert await stored(cluster) == left


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_attempts_swap_environments_at_once(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 2)
    jobs = [await running(cluster), await running(cluster)]
    reports = [REPORT, REPORT | {"python": "3.13.1"}]
    for job_id, report in zip(jobs, reports, strict=True):
        await cluster.report_event(job_id, "packages", report)
    beside = Database(cluster.db.url.render_as_string(hide_password=False))

    async def take(job_id: str, report: dict[str, Any]) -> None:
        async with beside.transaction() as session:
            attempt = await session.get_one(Attempt, (job_id, 1))
            await environments.store(session, attempt, Packages.model_validate(report))

    await asyncio.gather(*map(take, jobs, reports[::-1]))
    await beside.close()
    service = cluster.coordinator.jobs
    assert [(await service.packages(each)).python for each in jobs] == ["3.13.1", "3.12.3"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"python": 3}, "python"),
        ({"os": ""}, "os"),
        ({"cuda": "1\n2"}, "cuda"),
        ({"packages": None}, "packages"),
        ({"packages": {"torch": 2}}, "packages.torch"),
        ({"packages": {"torch": "v" * 65}}, "packages.torch"),
        ({"packages": {"a\0": "1"}}, "packages.a\0.[key]"),
        ({"packages": {f"p{i}": "1" for i in range(MAX_PACKAGES + 1)}}, "packages"),
    ],
)
def test_malformed_report_is_refused(change: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Packages.model_validate(REPORT | change)
    assert first_problem(refused.value).startswith(f"{field}: ")
