"""A real agent as a process beside a test, against whatever coordinator the test brings."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import psutil
from support.forking import forks
from support.holds import with_tests
from support.waiting import PATIENCE, Pauses

from trainhall.cluster.agent.os_support.processes import MARK
from trainhall.training.link.launch import CheckpointPlan, Launch, RankSlot
from trainhall.training.spec.parse import validate_spec

T = TypeVar("T")
FOLDER_VARIABLE = "TRAINHALL_TEST_FOLDER"


class AgentProcess:
    """An agent that a test may kill and start again on the same data folder."""

    def __init__(
        self,
        folder: Path,
        url: str,
        token: str,
        *,
        stop_ranks: bool = False,
        save_seconds: float = 30.0,
    ) -> None:
        self.folder = folder
        self.data_dir = folder / "agent"
        how = "stop" if stop_ranks else "leave"
        self._arguments = [url, token, str(self.data_dir), how, str(save_seconds)]
        self._log = folder / "agent.log"
        self.process: forks.Fork | None = None

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        env = with_tests() | forks.agent_environment() | {FOLDER_VARIABLE: str(self.folder)}
        with self._log.open("ab") as log, open(os.devnull, "rb") as nothing:
            files = [nothing, log, log]
            self.process = forks.fork(forks.SMALL_AGENT, self._arguments, files=files, env=env)

    def end(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(timeout=PATIENCE)

    def output(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def processes(self) -> list[psutil.Process]:
        """All that this agent started, however detached, and it itself."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                here = process.environ().get(FOLDER_VARIABLE) == str(self.folder)
                if here and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def warm_parents(self) -> list[psutil.Process]:
        return [p for p in self.processes() if p.ppid() == forks.warm_parents().pid]

    def rank_pids(self) -> dict[int, int]:
        """The live ranks' pids by rank."""
        found: dict[int, int] = {}
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                env = process.environ()
                if MARK in env and "RANK" in env and process.ppid() != 1:
                    found.setdefault(int(env["RANK"]), process.pid)
        return found


@contextlib.contextmanager
def agent_process(folder: Path, url: str, token: str, **options: Any) -> Iterator[AgentProcess]:
    """A running agent; afterwards nothing of it is left, whatever the test did."""
    agent = AgentProcess(folder, url, token, **options)
    agent.start()
    try:
        yield agent
    finally:
        assert agent.process is not None
        for process in agent.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()
        # One that was only just started has no environment yet, by which it would be found.
        agent.process.kill()
        agent.process.wait()


def launch_of(spec: dict[str, Any], **changes: Any) -> Launch:
    """A launch of a job on this host alone."""
    job = validate_spec({"name": "test", **spec})
    workers = job.resources.workers
    fields: dict[str, Any] = {
        "job_id": "job",
        "attempt": 1,
        "generation": 1,
        "spec": job,
        "world_size": workers,
        "node_rank": 0,
        "num_nodes": 1,
        "ranks": [
            RankSlot(rank=r, local_rank=r, device_kind="cpu", device_index=r)
            for r in range(workers)
        ],
        "checkpoint": CheckpointPlan(folder="", upload=True),
    }
    return Launch(**{**fields, **changes})


def script(folder: Path, text: str, *arguments: str, workers: int = 1, **recovery: Any) -> Any:
    """A spec that runs a script with this text."""
    path = folder / "script.py"
    path.write_text(text)
    spec: dict[str, Any] = {
        "script": {"path": str(path), "args": list(arguments)},
        "resources": {"workers": workers},
    }
    return {**spec, "recovery": recovery} if recovery else spec


async def until(what: str, check: Callable[[], T], *, seconds: float = PATIENCE) -> T:
    """The first truthy value of `check`, without holding up the coordinator in this process."""
    deadline = asyncio.get_running_loop().time() + seconds
    pauses = Pauses(0.02)
    while True:
        value = check()
        if value:
            return value
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"waited {seconds:g} s in vain for {what}; last seen: {value!r}")
        await asyncio.sleep(pauses.next())
