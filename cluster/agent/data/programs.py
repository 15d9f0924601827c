"""Starting the programs of this folder, and the errors that they report."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from trainhall.cluster.agent.os_support.accounts import Owner, groups_of
from trainhall.training.link.failure import Cause

BUFFER_BYTES = 4 * 2**20
_PACKAGE = __name__.rpartition(".")[0]


class DataFailedError(Exception):
    """A data set cannot be prepared; the message says why."""

    def __init__(self, message: str, cause: Cause = Cause.USER_ERROR) -> None:
        super().__init__(message)
        self.cause = cause


class ProgramError(Exception):
    """A program reports an error.

    Args:
        again: it may succeed if it is tried again.
    """

    def __init__(self, message: str, *, again: bool = False) -> None:
        super().__init__(message)
        self.again = again


class Programs:
    """
    Args:
        variables: their environment.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = dict(variables)
        self.running: set[int] = set()
        """Pids of those that run."""

    @asynccontextmanager
    async def started(
        self, name: str, request: Mapping[str, Any], owner: Owner | None = None
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """Start a program and give it a request; it is killed if it runs on when the block ends.

        Args:
            name: of its module in this folder.
            owner: as whom it runs; None: as this process.

        Raises:
            ProgramError: it has failed.
            OSError: it cannot be started.
        """
        user: dict[str, Any] = {}
        if owner is not None:
            user = {"user": owner.uid, "group": owner.gid, "extra_groups": groups_of(owner)}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", f"{_PACKAGE}.{name}"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._variables,
            cwd="/",
            start_new_session=True,
            limit=BUFFER_BYTES,
            **user,
        )
        assert process.stdin is not None
        assert process.stderr is not None
        self.running.add(process.pid)
        said = asyncio.create_task(process.stderr.read())
        try:
            # Not as arguments: other users see those, and there are secrets in it.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                process.stdin.write(json.dumps(request).encode() + b"\n")
                await process.stdin.drain()
                process.stdin.close()
            yield process
            if await process.wait():
                raise _error_of(await said, process.returncode)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            said.cancel()
            self.running.discard(process.pid)

    async def run(
        self, name: str, request: Mapping[str, Any], owner: Owner | None = None
    ) -> dict[str, Any]:
        """Run a program to its end and return its answer; raises as `started`."""
        async with self.started(name, request, owner) as process:
            assert process.stdout is not None
            printed = await process.stdout.read()
        answer: dict[str, Any] = json.loads(printed)
        return answer


def _error_of(said: bytes, code: int | None) -> ProgramError:
    lines = said.decode(errors="replace").strip().splitlines() or [""]
    try:
        found = json.loads(lines[-1])
        return ProgramError(str(found["message"]), again=bool(found["again"]))
    except (ValueError, KeyError, TypeError):
        return ProgramError(lines[-1] or f"the program left with {code}")


# Of the programs themselves.


def read_request() -> dict[str, Any]:
    """Return the request that this process was started with."""
    request: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    return request


def fail(message: str, *, again: bool = False) -> int:
    """Report an error to who has started this process; returns the exit code."""
    sys.stderr.write(json.dumps({"message": message, "again": again}) + "\n")
    return 1
