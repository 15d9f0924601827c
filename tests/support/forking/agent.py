"""The programs of forked agents, whose warm parents are forks, too; shims of scripts, and planners,
on request."""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from support.forking import forks

from trainhall.cli.main import main as trainhall
from trainhall.cluster.agent.attempt import Attempt
from trainhall.cluster.agent.daemon import run_agent
from trainhall.cluster.agent.launch import planner
from trainhall.cluster.agent.launch.launcher import Launcher
from trainhall.cluster.agent.launch.warm_client import SHIM_MODULE, WarmParent
from trainhall.cluster.agent.options import AgentError, AgentOptions
from trainhall.cluster.agent.shim import folder_ipc
from trainhall.cluster.agent.shim.rank_process import RANK_MODULE
from trainhall.cluster.agent.shipping import outputs
from trainhall.cluster.agent.shipping.outputs import OutputCollector
from trainhall.training.spec.plan import PLANNER


def main() -> None:
    """`trainhall agent`."""
    parent = _use_forks()
    if os.environ.pop(forks.FORKED_SCRIPTS, None):
        _fork_scripts(parent)
        _fork_planners(parent)
    if os.environ.pop(forks.EAGER_OUTPUTS, None):
        _store_outputs_at_once()
    trainhall()


def small() -> int | str:
    """An agent with two slots that gives up a coordinator soon."""
    url, token, folder, stop_ranks, save_seconds = sys.argv[1:]
    _use_forks()
    options = AgentOptions(
        coordinator=url, token=token or None, data_dir=Path(folder), slots=2, name="here",
        stop_ranks_on_exit=stop_ranks == "stop", reconnect_limit_seconds=0.3,
        save_seconds=float(save_seconds), pass_env=("TRAINHALL_TEST*",),
    )  # fmt: skip
    try:
        run_agent(options)
    except AgentError as error:
        return str(error)
    return 0


def _use_forks() -> str:
    """Have this process ask for its warm parents instead of executing them; returns whom."""
    parent = os.environ.pop(forks.WARM_PARENTS)

    def execute(self: WarmParent) -> socket.socket:
        ours, theirs = socket.socketpair()
        with self._data_dir.warm_log.open("wb") as log, theirs:
            forked: Any = forks.fork(
                "trainhall.training.process.warm_parent:main", [SHIM_MODULE, RANK_MODULE],
                files=[theirs, log, log], env=self._environment, parent=parent,
            )  # fmt: skip
            self._process = forked
        return ours

    WarmParent._execute = execute  # type: ignore[method-assign]
    return parent


def _fork_scripts(parent: str) -> None:
    """Have it ask for the shims of scripts, too, and these for their Python scripts."""

    def execute(self: Launcher, attempt: Attempt) -> Any:
        with folder_ipc.log_path(attempt.folder).open("ab") as log, open(os.devnull) as nothing:
            child: Any = forks.fork(
                forks.SHIM_OF_FORKED_SCRIPTS,
                [str(attempt.folder.path), "--doorbell", str(self._data_dir.doorbell)],
                files=[nothing, log, log], env=self._environment, cwd=Path("/"), parent=parent,
            )  # fmt: skip
        self.children.append(child)
        return child

    Launcher._execute = execute  # type: ignore[method-assign]


def _store_outputs_at_once() -> None:
    collect = OutputCollector.collect

    async def collect_often(self: OutputCollector, ended: bool) -> None:
        await collect(self, ended)
        self._due = time.monotonic() + 0.1

    OutputCollector.collect = collect_often  # type: ignore[method-assign]
    vars(outputs).update(INTERVAL_SECONDS=0.1, SETTLED_SECONDS=0.1)


def _fork_planners(parent: str) -> None:
    async def run(
        request: bytes, environment: Mapping[str, str], *_: object
    ) -> tuple[int, bytes, bytes]:
        with ExitStack() as files:
            process = forks.start(
                files,
                f"{PLANNER}:main",
                [],
                given=request.decode(),
                env=environment,
                cwd=Path("/"),
                parent=parent,
            )
            try:
                out, err = await asyncio.to_thread(process.communicate)
            except asyncio.CancelledError:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # and its copies
                process.wait()
                raise
        return process.wait(), out.encode(), err.encode()

    vars(planner)["_run"] = run
