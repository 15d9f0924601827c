"""Fingerprints of data sets: kept by attempt, and compared between hosts."""

import pytest
from support.cluster.simulated import SimulatedCluster

from trainhall.cluster.errors import ConflictError
from trainhall.cluster.wire.data_sets import DataReport, Fingerprint

DATA = [{"name": "a", "path": "/a"}, {"name": "b", "path": "/b"}]


def report(name: str, sha256: str = "1") -> DataReport:
    found = Fingerprint(name=name, kind="listing", sha256=sha256 * 64, bytes=2**40, files=3)
    return DataReport(items=[found])


async def test_first_fingerprint_stays_and_others_are_noted(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 1)
    job_id = await cluster.submit(data=DATA)
    await cluster.run_until(job_id, "running")
    service = cluster.coordinator.data
    for node, sha256 in (("one", "1"), ("two", "1"), ("three", "2")):
        await service.store(node, job_id, 1, report("a", sha256))
    first, second = (await service.read(job_id)).items
    assert (first.node, first.sha256, first.bytes, first.attempt) == ("one", "1" * 64, 2**40, 1)
    assert (second.path, second.node, second.sha256) == ("/b", None, None)
    events = await cluster.coordinator.jobs.events(job_id)
    texts = [each.reason for each in events.items if each.code == "data_differs"]
    assert texts == ["data set a is not the same on one and three"]
    with pytest.raises(ConflictError, match="has no data set c"):
        await service.store("one", job_id, 1, report("c"))
    await service.store("one", job_id, 2, report("a", "3"))
    assert (await service.read(job_id)).items[0].attempt == 2
    await cluster.finish(job_id)
    await cluster.coordinator.jobs.delete(job_id)


async def test_preparation_takes_longer_than_a_start(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha", 1)
    job_id = await cluster.submit(data=DATA)
    node.running(job_id).preparing = "downloading data set a"
    limit = cluster.options.start_limit_seconds
    for _ in range(3):
        await cluster.heartbeat(limit / 2)
    assert (await cluster.job(job_id)).reason_code == "preparing"
    node.running(job_id).preparing = None
    await cluster.run_until(job_id, "running")
