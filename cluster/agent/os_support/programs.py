"""Programs that this agent runs for a job, to their end: as its user, killed on cancellation."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trainhall.cluster.agent.os_support.accounts import Owner

MAX_OUTPUT_BYTES = 16 * 2**20
"""Most bytes that are kept of each output: a job decides what some of them print."""


class Ended(NamedTuple):
    """Outcome of a program."""

    code: int
    """Exit code; negative: minus the signal that ended it."""
    stdout: bytes
    """Its end, as of `stderr`, where it is longer than `MAX_OUTPUT_BYTES`."""
    stderr: bytes


async def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    cwd: Path | str,
    running: set[int],
    owner: Owner | None = None,
    stdin: bytes | None = None,
) -> Ended:
    """Run a program to its end. If cancelled, its process group is killed first.

    Args:
        running: holds its pid while it runs.
        owner: as whom it runs; None: as this process.
        stdin: what it reads; None: nothing.

    Raises:
        OSError: it cannot be started.
    """
    user: dict[str, Any] = {}
    if owner is not None:
        user = {"user": owner.uid, "group": owner.gid, "extra_groups": []}
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(environment),
        cwd=cwd,
        start_new_session=True,
        **user,
    )
    running.add(process.pid)
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        _, stdout, stderr, _ = await asyncio.gather(
            _feed(process.stdin, stdin), _end_of(process.stdout), _end_of(process.stderr),
            process.wait(),
        )  # fmt: skip
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # and what it started
        await process.wait()
        raise
    finally:
        running.discard(process.pid)
    assert process.returncode is not None
    return Ended(process.returncode, stdout, stderr)


async def _feed(stream: asyncio.StreamWriter | None, data: bytes | None) -> None:
    if stream is not None and data is not None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it does not read it all
            stream.write(data)
            await stream.drain()
        stream.close()


async def _end_of(stream: asyncio.StreamReader) -> bytes:
    """Read to the end, and return the last bytes."""
    kept = bytearray()
    while part := await stream.read(65_536):
        kept += part
        if len(kept) > 2 * MAX_OUTPUT_BYTES:
            del kept[:-MAX_OUTPUT_BYTES]
    return bytes(kept[-MAX_OUTPUT_BYTES:])
