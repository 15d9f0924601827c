"""Jobs that kill their own shim, and what they leave: nothing."""

import contextlib
import os
import time
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.cluster.agent_process import AgentProcess, agent_process, launch_of, script, until
from support.cluster.fake_coordinator import TOKEN, FakeCoordinator
from support.forking.run_as import a_range, a_user, needs_root, run_as_agent

from trainhall.cluster.agent.os_support import processes
from trainhall.training.link.launch import Launch

KILLS_ITS_SHIM = """
import os, signal, sys, time
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        # Nothing in its environment, no parent and no session tells whose it is.
        code = "import os, sys, time; os.write(int(sys.argv[1]), b'%d' % os.getpid())"
        code += "; os.close(int(sys.argv[1])); time.sleep(600)"
        os.set_inheritable(write, True)
        os.execve(sys.executable, [sys.executable, "-S", "-c", code, str(write)], {})
    os._exit(0)
os.close(write)
print("survivor", os.read(read, 20).decode(), flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
os.kill(os.getppid(), signal.SIGKILL)
time.sleep(600)
"""


@pytest.fixture
async def coordinator() -> AsyncIterator[FakeCoordinator]:
    fake = FakeCoordinator()
    async with fake.serving():
        yield fake


def survivor(coordinator: FakeCoordinator, launch: Launch) -> int | None:
    words = coordinator.log(launch).split()
    return int(words[1]) if len(words) == 2 else None


def lives(pid: int | None) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def end(pid: int | None) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).kill()


@pytest.mark.processes
@pytest.mark.parametrize("users", ["none", "one", "range"])
async def test_job_that_kills_its_shim_leaves_nothing(
    coordinator: FakeCoordinator, tmp_path: Path, users: str
) -> None:
    agent: AbstractContextManager[AgentProcess]
    if users == "none":
        agent = agent_process(tmp_path, coordinator.url, TOKEN)
    elif os.geteuid() == 0:
        agent = run_as_agent(coordinator.url, TOKEN, a_user() if users == "one" else a_range())
    else:
        pytest.skip("only root may switch to other users")
    with agent as running:
        folders = [running.folder / name for name in ("innocent", "hostile")]
        for folder in folders:
            folder.mkdir(mode=0o755)
        gates = [folder / "gate" for folder in folders]
        innocent = launch_of(script(folders[0], KILLS_ITS_SHIM, str(gates[0])), job_id="innocent")
        hostile = launch_of(script(folders[1], KILLS_ITS_SHIM, str(gates[1])), job_id="hostile")
        coordinator.want((innocent, "run"))
        beside = await until("the other job", partial(survivor, coordinator, innocent))
        coordinator.want((innocent, "run"), (hostile, "run"))
        left = await until("its process", partial(survivor, coordinator, hostile))
        gates[1].touch()
        await until("its end", lambda: coordinator.outcome(hostile) == "failed")
        survives = lives(left)
        end(left)
        assert not survives
        assert lives(beside)
        assert "supervised" in coordinator.reported(hostile).failure.message
        assert coordinator.outcome(innocent) is None
        coordinator.want((innocent, "stop"), (hostile, "run"))
        await until("the other's end", lambda: coordinator.outcome(innocent) == "stopped")
        assert not lives(beside)
        assert running.process is not None
        assert running.process.poll() is None


@pytest.mark.processes
@needs_root
def test_processes_of_user_spare_live_shims() -> None:
    uid = int(a_range().split("-")[0])
    sleep: Any = ["/bin/sleep", "600"]
    with psutil.Popen(sleep, user=uid) as first, psutil.Popen(sleep, user=uid) as second:
        try:
            assert processes.of_user(uid, 0.0, set()) == {first.pid, second.pid}
            assert processes.of_user(uid, 0.0, {first.pid}) == {second.pid}
            assert not processes.of_user(uid, 0.0, {os.getpid()})
            assert not processes.of_user(uid, time.time() + 60, set())
        finally:
            first.kill()
            second.kill()
