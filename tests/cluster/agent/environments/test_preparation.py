"""The environment of an attempt: locked by the first host, installed by it on all others."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest
from support.cluster.agent_process import launch_of
from support.storage.wheels import add_wheel

from trainhall.cluster.agent.data_dir import DataDir
from trainhall.cluster.agent.environments.preparation import Environments, Prepared
from trainhall.cluster.agent.environments.uv import EnvironmentFailedError
from trainhall.cluster.wire.environment_lock import EnvironmentLock

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("wheels")]

PROBE = """
import importlib.util, sys, beta, trainhall
from trainhall.training.sdk import api
assert sys.prefix != sys.base_prefix
assert importlib.util.find_spec("torch").origin
assert importlib.util.find_spec("fastapi") is None, "of the agent alone"
print(beta.VERSION, trainhall.__version__)
"""


class Coordinator:
    """Keeps the first lock of each job."""

    def __init__(self) -> None:
        self.locks: dict[str, EnvironmentLock] = {}

    async def get_environment(self, job_id: str, attempt: int) -> EnvironmentLock | None:
        return self.locks.get(job_id)

    async def put_environment(
        self, job_id: str, attempt: int, lock: EnvironmentLock
    ) -> EnvironmentLock:
        return self.locks.setdefault(job_id, lock)


def probe(python: str) -> str:
    return subprocess.check_output([python, "-c", PROBE], text=True, cwd="/")


async def prepare(folder: Path, coordinator: Coordinator) -> tuple[Prepared, list[str]]:
    """Prepare a job's environment as a host whose data is in `folder`."""
    environments = Environments(DataDir(folder), coordinator, dict(os.environ))
    launch = launch_of({"script": {"path": "/t.py"}, "environment": {"requirements": ["beta"]}})
    said: list[str] = []

    async def no_code(to: Path) -> None:
        raise AssertionError("a list needs no code")

    found = await environments.prepare(launch, folder / "scratch", no_code, said.append)
    assert not (folder / "scratch").exists()
    return found, said


async def test_second_host_installs_the_lock_of_the_first(tmp_path: Path, wheels: Path) -> None:
    coordinator = Coordinator()
    first, said = await prepare(tmp_path / "first", coordinator)
    assert said == ["locking the versions of its packages", "installing 1 package"]
    assert "beta==1.5" in first.log
    add_wheel(wheels, "beta", "2.0")
    second, said = await prepare(tmp_path / "second", coordinator)
    assert said == ["installing 1 package"]
    shown = await asyncio.to_thread(probe, second.built.python)
    assert shown.split()[0] == "1.5"
    again, said = await prepare(tmp_path / "second", coordinator)
    assert (said, again.built) == ([], second.built)


async def test_lock_for_other_hosts_is_named(tmp_path: Path) -> None:
    coordinator = Coordinator()
    coordinator.locks["job"] = EnvironmentLock(
        python="3.11", platform="linux-s390x", torch="host", requirements=""
    )
    with pytest.raises(EnvironmentFailedError, match="of the kind linux-s390x"):
        await prepare(tmp_path, coordinator)
    coordinator.locks["job"] = EnvironmentLock(
        python="3.99", platform=f"linux-{os.uname().machine}", torch="host", requirements=""
    )
    with pytest.raises(
        EnvironmentFailedError, match=r"for Python 3\.99, which this host does not have"
    ):
        await prepare(tmp_path, coordinator)


async def test_changed_package_is_not_installed(tmp_path: Path, wheels: Path) -> None:
    coordinator = Coordinator()
    await prepare(tmp_path / "first", coordinator)
    lock = coordinator.locks["job"]
    broken = lock.requirements.replace("sha256:", "sha256:0")[:-2] + "\n"
    coordinator.locks["job"] = lock.model_copy(update={"requirements": broken})
    with pytest.raises(EnvironmentFailedError, match="Hash mismatch"):
        await prepare(tmp_path / "second", coordinator)
