"""The agent's side of the warm parent: keeps one running and asks it for shims."""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from trainhall.cluster.agent.data_dir import DataDir
from trainhall.cluster.agent.os_support import linux
from trainhall.cluster.agent.shim.rank_process import RANK_MODULE
from trainhall.training.event_log import EventLogger
from trainhall.training.link.folder import AttemptFolder

logger = EventLogger(__name__)

WARM_MODULE = "trainhall.training.process.warm_parent"
SHIM_MODULE = "trainhall.cluster.agent.shim.main"
ANSWER_SECONDS = 10.0
"""A fork takes milliseconds; a parent that does not answer for so long is broken."""
IMPORT_SECONDS = 300.0
"""For torch to be imported, which from a slow file system takes a minute or two."""
RESTART_SECONDS = 1.0
"""Between two checks that the parent lives."""
BROKEN_SECONDS = 60.0
"""Before another try where it could not be started."""


class TorchUnavailableError(Exception):
    """Built-in tasks cannot run on this host; the message says why and what to do."""


class WarmParentError(Exception):
    """The warm parent is gone; start the shim without it."""


def execute(
    log_path: Path, environment: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a warm parent; return it, and the socket by which it is asked for forks."""
    ours, theirs = socket.socketpair()
    with log_path.open("wb") as log, theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", WARM_MODULE, SHIM_MODULE, RANK_MODULE],
            stdin=theirs.fileno(),
            stdout=log,
            stderr=log,
            env={**environment, **linux.environment_padding()},
            start_new_session=True,
        )
    return process, ours


class WarmParent:
    """One warm parent, restarted when it ends.

    Args:
        environment: the one that its forks, the shims, begin with.
    """

    def __init__(self, data_dir: DataDir, environment: Mapping[str, str]) -> None:
        self._data_dir = data_dir
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._starting: asyncio.Task[None] | None = None
        self._asking = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """Return the pid of the parent; None before the first start."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Begin to import torch, which takes seconds, in the background."""
        if self._starting is None or (self._starting.done() and not self._alive()):
            self._starting = asyncio.create_task(self._start(), name="warm-parent")
            self._starting.add_done_callback(_retrieve)

    def _alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _execute(self) -> socket.socket:
        self._process, link = execute(self._data_dir.warm_log, self._environment)
        return link

    async def _start(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(sock=self._execute())
        try:
            async with asyncio.timeout(IMPORT_SECONDS):
                line = await self._reader.readline()
        except TimeoutError:
            if self._process is not None:
                self._process.kill()  # not waited for: a file system may hold it
            self._writer.close()
            raise WarmParentError(
                f"the warm parent was not ready within {IMPORT_SECONDS:g} s"
            ) from None
        if not line.endswith(b"\n"):
            raise WarmParentError(f"the warm parent ended; {self._data_dir.warm_log} says why")
        answer = json.loads(line)
        if "error" in answer:
            raise (
                TorchUnavailableError(answer["error"])
                if answer.get("missing")
                else WarmParentError(answer["error"])
            )

    async def start_shim(
        self, folder: AttemptFolder, doorbell: Path, confinement: str = ""
    ) -> None:
        """Ask the warm parent to fork a shim.

        Args:
            confinement: what it becomes first, as JSON.

        Raises:
            TorchUnavailableError: built-in tasks cannot run here.
            WarmParentError: there is no warm parent at this moment.
        """
        self.start()
        assert self._starting is not None
        try:
            await asyncio.shield(self._starting)
        except OSError as error:
            raise WarmParentError(f"the warm parent cannot be started: {error}") from None
        request = {
            "target": f"{SHIM_MODULE}:main_forked",
            "arguments": [str(folder.path), str(doorbell), confinement],
        }
        try:
            async with self._asking, asyncio.timeout(ANSWER_SECONDS):
                answer = await self._ask(request)
        except (TimeoutError, OSError, ValueError) as error:
            self._kill()
            raise WarmParentError(
                f"the warm parent does not answer ({type(error).__name__})"
            ) from None
        if "error" in answer:
            raise WarmParentError(f"the warm parent could not fork: {answer['error']}")

    async def _ask(self, request: Mapping[str, object]) -> dict[str, object]:
        if self._reader is None or self._writer is None:
            raise ConnectionResetError
        self._writer.write(json.dumps(dict(request)).encode() + b"\n")
        await self._writer.drain()
        line = await self._reader.readline()
        if not line:
            raise ConnectionResetError
        return dict(json.loads(line))

    def _kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._writer is not None:
            self._writer.close()

    async def watch(self) -> None:
        """Start the parent again whenever it ends, until cancelled."""
        while True:
            self.start()
            assert self._starting is not None
            pause = RESTART_SECONDS
            try:
                await asyncio.shield(self._starting)
            except (TorchUnavailableError, WarmParentError, OSError):
                # What is missing is installed by people, or asked for by a job.
                pause = BROKEN_SECONDS
            await asyncio.sleep(pause)

    async def stop(self) -> None:
        """End the parent; its shims live on."""
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._starting
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()
        if self._process is not None:
            # It has nothing to tidy up, and may be deep in an import that takes seconds.
            self._process.kill()
            self._process.wait()


def _retrieve(task: asyncio.Task[None]) -> None:
    """Log why the parent did not start, once per start."""
    if not task.cancelled() and task.exception() is not None:
        logger.warning("warm_parent_failed", error=task.exception())
