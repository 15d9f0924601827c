"""One shim on one folder, as `trainhall run` uses it."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from support.cluster.agent_process import launch_of
from support.forking import forks
from support.forking.forks import Fork
from support.waiting import PATIENCE, eventually

from trainhall.cluster.agent.os_support import processes
from trainhall.cluster.agent.shim import folder_ipc
from trainhall.training.link.folder import AttemptFolder, replace_json
from trainhall.training.link.launch import Command, Launch
from trainhall.training.link.status import ShimStatus


class Run:
    """One shim on one folder."""

    def __init__(
        self,
        path: Path,
        launch: Launch,
        *arguments: str,
        before: Callable[[AttemptFolder], None] = lambda _: None,
    ) -> None:
        self.folder = AttemptFolder(path)
        self.launch = launch
        path.mkdir(parents=True)
        replace_json(self.folder.launch, launch)
        before(self.folder)
        self.process = self.start(*arguments)

    def start(self, *arguments: str) -> Fork:
        parent = forks.warm_parents() if "--preload" in arguments else forks.programs()
        return self._fork("trainhall.cluster.agent.shim.main:main", parent, arguments)

    def _fork(self, target: str, parent: forks.Parent, arguments: Sequence[str]) -> Fork:
        theirs, ours = os.pipe()
        with open(theirs, "rb") as file:
            process = forks.fork(
                target, [str(self.folder.path), *arguments],
                files=[file, 1, 2], parent=parent.address,
            )  # fmt: skip
        process.stdin = open(ours, "wb")  # noqa: SIM115
        return process

    @property
    def status(self) -> ShimStatus:
        return ShimStatus.model_validate_json(self.folder.status.read_bytes())

    def wait(self) -> ShimStatus:
        assert self.process.wait(timeout=PATIENCE) == 0
        assert not processes.marked(self.folder.path)
        assert not folder_ipc.command_path(self.folder).exists()
        assert self.status.phase == "exited"
        return self.status

    def wait_for_output(self, text: bytes, rank: int = 0) -> None:
        path = self.folder.stdout(rank)
        eventually(f"{text!r}", lambda: path.exists() and text in path.read_bytes())

    def send_command(self, command: Command) -> None:
        assert folder_ipc.send_command(self.folder, command)

    def end(self) -> None:
        """End the shim, and whatever is left of its ranks."""
        assert self.process.stdin is not None
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        processes.send(processes.marked(self.folder.path), signal.SIGKILL)


class WarmRun(Run):
    """A shim whose Python scripts have torch imported when they begin."""

    def start(self, *arguments: str) -> Fork:
        return self._fork(forks.SHIM_OF_FORKED_SCRIPTS, forks.warm_parents(), arguments)


@contextlib.contextmanager
def shims(folder: Path, kind: type[Run] = Run) -> Iterator[Any]:
    """Starts shims from specs, each in a folder of its own; whatever is left is ended."""
    started: list[Run] = []

    def start(
        spec: dict[str, Any],
        *arguments: str,
        before: Callable[[AttemptFolder], None] = lambda _: None,
        **changes: Any,
    ) -> Run:
        path = folder / f"attempt-{len(started)}"
        started.append(kind(path, launch_of(spec, **changes), *arguments, before=before))
        return started[-1]

    try:
        yield start
    finally:
        for one in started:
            one.end()
