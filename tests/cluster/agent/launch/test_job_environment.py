"""Jobs get what the allow-list names of their agent's environment, and nothing else."""

import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.cluster.agent_process import agent_process, launch_of, script, until
from support.cluster.fake_coordinator import TOKEN, FakeCoordinator

from trainhall.cluster.agent.daemon import Agent
from trainhall.cluster.agent.data_dir import DataDir
from trainhall.cluster.agent.launch.job_environment import job_environment
from trainhall.cluster.agent.options import AgentOptions, OptionError

SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "s",
    "TRAINHALL_TOKEN": "thj_s",
    "TRAINHALL_JOIN_TOKEN": "thj_s",
    "DATABASE_URL": "postgresql://u:s@db",
    "HF_TOKEN": "s",
    "WANDB_API_KEY": "s",
}
USUAL = {
    "PATH": "/bin", "HOME": "/home/u", "LC_ALL": "C.UTF-8", "CUDA_VISIBLE_DEVICES": "0",
    "NCCL_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "2", "https_proxy": "http://proxy:1",
    "PYTHONPATH": "/lab", "HF_HOME": "/data/hf",
}  # fmt: skip
PRINTS_ENVIRONMENTS = """
import json, os, pathlib
seen, pid = dict(os.environ), os.getppid()
# By which a process was started: all that runs as the same user can read it.
block = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\\0")
shim = dict(e.decode().split("=", 1) for e in block if b"=" in e)
print(json.dumps({"rank": seen, "shim": shim}), flush=True)
"""


def test_usual_variables_pass_and_secrets_do_not() -> None:
    assert job_environment(USUAL | SECRETS) == USUAL


def test_further_names_pass() -> None:
    found = job_environment(USUAL | SECRETS, ["AWS_*", "WANDB_API_KEY"])
    assert found.keys() - USUAL.keys() == {"AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY"}
    assert job_environment(USUAL | SECRETS, ["*"]) == USUAL | SECRETS


@pytest.mark.parametrize("name", ["", "A B", "AWS_=1", "*_KEY", "1A", "AWS?"])
def test_name_that_is_no_variable_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(OptionError, match="--pass-env"):
        AgentOptions(coordinator="http://c:1", data_dir=tmp_path, pass_env=("A", name))


def test_warm_parent_holds_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every task is forked from it, and can read its environment."""
    started: list[dict[str, Any]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **options: started.append(options))
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    options = AgentOptions(coordinator="http://127.0.0.1:1", data_dir=tmp_path, slots=1)
    agent = Agent(options, DataDir(tmp_path), None)
    (tmp_path / "logs").mkdir()
    agent._warm._execute().close()
    (found,) = started
    assert not found["env"].keys() & SECRETS.keys()
    assert found["env"]["PATH"] == os.environ["PATH"]


@pytest.fixture
async def coordinator() -> AsyncIterator[FakeCoordinator]:
    fake = FakeCoordinator()
    async with fake.serving():
        yield fake


@pytest.mark.processes
async def test_script_and_its_shim_have_no_secrets(
    coordinator: FakeCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    with agent_process(tmp_path, coordinator.url, TOKEN):
        launch = launch_of(script(tmp_path, PRINTS_ENVIRONMENTS))
        coordinator.want((launch, "run"))
        await until("it to complete", lambda: coordinator.outcome(launch) == "completed")
        await until("it to be shipped", lambda: coordinator.reported(launch).shipped)
    found: dict[str, dict[str, Any]] = json.loads(coordinator.log(launch))
    assert not found["rank"].keys() & SECRETS.keys()
    assert not found["shim"].keys() & SECRETS.keys()
    assert found["rank"]["NCCL_DEBUG"] == "WARN"
