"""Commits of code in git: the first one stays, for the job and for the runs of its experiment."""

from typing import Any

import pytest
from support.cluster.simulated import SimulatedCluster

from trainhall.cluster.errors import ConflictError, NotFoundError
from trainhall.db.models import Job

CODE = {"git": "https://git.example/lab", "ref": "main"}
SCRIPT: dict[str, Any] = {"task": None, "script": {"path": "train.py"}, "training": {}}
FIRST, SECOND = "a" * 40, "b" * 40


async def running(cluster: SimulatedCluster, **more: Any) -> str:
    await cluster.add_node("alpha", 2)
    job_id = await cluster.submit(**more)
    await cluster.run_until(job_id, "running")
    return job_id


async def test_first_commit_of_a_job_stays(cluster: SimulatedCluster) -> None:
    job_id = await running(cluster, code=CODE)
    service, jobs = cluster.coordinator.commits, cluster.coordinator.jobs
    assert await service.of_attempt("n", job_id, 1) is None
    assert (await jobs.provenance(job_id)).git is None
    assert [await service.pin("n", job_id, 1, each) for each in (FIRST, SECOND)] == [FIRST, FIRST]
    assert await service.of_attempt("n", job_id, 1) == FIRST
    git = (await jobs.provenance(job_id)).git
    assert git is not None
    assert (git.commit, git.branch, git.remote) == (FIRST, "main", CODE["git"])
    files = await cluster.coordinator.job_code.files(job_id)
    assert (files.sha256, files.commit, files.items) == (None, FIRST, [])
    with pytest.raises(NotFoundError):
        await service.of_attempt("n", job_id, 2)
    await cluster.finish(job_id)
    with pytest.raises(ConflictError, match="is over"):
        await service.pin("n", job_id, 1, FIRST)
    await jobs.delete(job_id)


async def test_job_without_git_has_no_commit(cluster: SimulatedCluster) -> None:
    job_id = await running(cluster)
    with pytest.raises(ConflictError, match="is not in git"):
        await cluster.coordinator.commits.pin("n", job_id, 1, FIRST)


async def test_code_in_git_is_compared_by_commit(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 3)
    ids = [await cluster.submit(code=CODE) for _ in range(3)]
    service, code = cluster.coordinator.commits, cluster.coordinator.job_code
    for job_id in ids:
        await cluster.run_until(job_id, "running")
    assert (await code.compare(ids[0], ids[1])).identical is None
    for job_id, commit in zip(ids, (FIRST, FIRST, SECOND), strict=True):
        await service.pin("n", job_id, 1, commit)
    assert (await code.compare(ids[0], ids[1])).identical is True
    assert (await code.compare(ids[0], ids[2])).identical is None


async def test_runs_of_an_experiment_share_a_commit(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 3)
    ids = [await cluster.submit(code=CODE) for _ in range(2)]
    ids.append(await cluster.submit(code={**CODE, "ref": "dev"}))
    for job_id in ids:
        await cluster.run_until(job_id, "running")
    async with cluster.db.transaction() as session:
        for job_id in ids:
            job = await session.get(Job, job_id)
            assert job is not None
            job.experiment_id = "e"
    service = cluster.coordinator.commits
    assert await service.pin("n", ids[0], 1, FIRST) == FIRST
    assert await service.of_attempt("n", ids[1], 1) == FIRST
    # Its own by now, whatever happens to the run that resolved it.
    git = (await cluster.coordinator.jobs.provenance(ids[1])).git
    assert git is not None
    assert git.commit == FIRST
    assert await service.pin("n", ids[1], 1, SECOND) == FIRST
    assert await service.of_attempt("n", ids[2], 1) is None
    assert await service.pin("n", ids[2], 1, SECOND) == SECOND
