"""Code of attempts in git: one commit for the job, cloned once for a host."""

import os
from pathlib import Path
from typing import Any

import pytest
from support.git.repositories import Repository

from trainhall.cluster.agent.coordinator_link.http_api import RefusedError
from trainhall.cluster.agent.git.clone import Cloning
from trainhall.cluster.agent.git.errors import CloneError
from trainhall.cluster.agent.launch.code_cache import CodeCache
from trainhall.cluster.agent.launch.job_code import JobCode
from trainhall.training.link.launch import CheckpointPlan, Launch
from trainhall.training.spec import JobSpec

pytestmark = pytest.mark.processes


class Coordinator:
    """Keeps the first commit; `before` came from another host meanwhile."""

    def __init__(self, before: str | None = None) -> None:
        self.commit: str | None = None
        self.before = before

    async def get_commit(self, job_id: str, attempt: int) -> str | None:
        return self.commit

    async def put_commit(self, job_id: str, attempt: int, commit: str) -> str:
        self.commit = self.before or commit
        return self.commit

    async def get_code(self, sha256: str, to: Path) -> tuple[int, str]:
        raise RefusedError(404, "there is no code")


class Host:
    def __init__(self, folder: Path, coordinator: Coordinator) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        (folder / "code").mkdir()
        cloning = Cloning({"PATH": os.environ["PATH"]}, set(), allows_files=True)
        self.code = JobCode(CodeCache(folder / "code", coordinator), coordinator, cloning)
        self.reported: list[str] = []
        self.copies = 0

    async def copy(self, launch: Launch) -> Path:
        self.copies += 1
        to = self.folder / f"copy-{self.copies}"
        name = await self.code.copy(launch, to, self.folder / "scratch", self.reported.append)
        assert (self.folder / "code" / name).is_dir()
        assert not (self.folder / "scratch").exists()
        return to


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "lab")


def launch_of(repository: Repository, job_id: str = "job-1", **more: Any) -> Launch:
    code = {"git": f"file://{repository.folder}", **more}
    spec = JobSpec.model_validate({"name": "x", "code": code, "script": {"path": "train.py"}})
    return Launch(
        job_id=job_id, attempt=1, generation=1, spec=spec, world_size=1, node_rank=0, num_nodes=1,
        ranks=[], checkpoint=CheckpointPlan(folder="", upload=True),
    )  # fmt: skip


async def test_later_attempts_use_the_pinned_commit(tmp_path: Path, repository: Repository) -> None:
    commit = repository.commit(train="one")
    coordinator = Coordinator()
    host = Host(tmp_path / "host", coordinator)
    launch = launch_of(repository)
    first = await host.copy(launch)
    assert coordinator.commit == commit
    repository.commit(train="two")
    (first / "train.py").write_text("changed")
    other = Host(tmp_path / "other", coordinator)
    for again in (await host.copy(launch), await other.copy(launch)):
        assert (again / "train.py").read_text() == "one"
    assert len(host.reported) == len(other.reported) == 1
    assert host.reported[0].startswith("cloning file://")
    # Another job's clone is its own: it may use another token.
    assert (await host.copy(launch_of(repository, "job-2")) / "train.py").read_text() == "one"
    assert len(host.reported) == 2


async def test_commit_of_the_first_host_counts(tmp_path: Path, repository: Repository) -> None:
    first = repository.commit(train="one")
    repository.commit(train="two")
    host = Host(tmp_path / "host", Coordinator(before=first))
    copy = await host.copy(launch_of(repository))
    assert (copy / "train.py").read_text() == "one"


async def test_pinned_commit_may_fail_for_a_while(tmp_path: Path) -> None:
    launch = launch_of(Repository(tmp_path / "lab"))
    code = launch.spec.model_copy(
        update={"code": launch.spec.code.model_copy(update={"git": "http://127.0.0.1:9/lab"})}  # type: ignore[union-attr]
    )
    launch = launch.model_copy(update={"spec": code})
    coordinator = Coordinator()
    host = Host(tmp_path / "host", coordinator)
    with pytest.raises(CloneError) as first:
        await host.copy(launch)
    coordinator.commit = "0" * 40
    with pytest.raises(CloneError) as later:
        await host.copy(launch)
    assert (first.value.is_passing, later.value.is_passing) == (False, True)
    assert list((host.folder / "code").iterdir()) == []
