"""uv, which resolves and installs packages: it is run, awaited and asked for its own words."""

import asyncio
import codecs
import contextlib
import os
import shutil
import signal
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainhall.cluster.agent.os_support.accounts import Owner
from trainhall.training.link.failure import Cause

_READ_BYTES = 65_536
_TAIL_BYTES = 4096
_MESSAGE_CHARACTERS = 600
_HOSTS_FAULTS = ("Failed to fetch", "No space left", "Permission denied", "Read-only file system")
"""Words of what is no mistake of the job's own."""


class EnvironmentFailedError(Exception):
    """The environment cannot be made; the message says why, in the resolver's words."""

    def __init__(self, message: str, log_tail: str = "", cause: Cause = Cause.USER_ERROR) -> None:
        super().__init__(message)
        self.log_tail = log_tail
        self.cause = cause


class Uv:
    """
    Args:
        variables: its environment; its own variables (UV_…), such as UV_DEFAULT_INDEX, are options.
        running: holds the pids of those that run.
        take_line: takes each line that it prints on standard error, at once.
    """

    def __init__(
        self,
        variables: Mapping[str, str],
        running: set[int],
        take_line: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._variables = dict(variables)
        self._running = running
        self._take_line = take_line

    def with_variables(self, **variables: str) -> "Uv":
        """Return the same with other variables."""
        return Uv(self._variables | variables, self._running, self._take_line)

    def with_output_to(self, take_line: Callable[[str], None]) -> "Uv":
        """Return the same, whose lines are taken elsewhere."""
        return Uv(self._variables, self._running, take_line)

    async def run(
        self, *arguments: str | Path, cwd: Path, owner: Owner | None = None
    ) -> tuple[str, str]:
        """Run it to its end; if cancelled, it is killed first.

        Args:
            owner: as whom it runs; None: as this process.

        Returns:
            What it printed, and what it said on standard error.

        Raises:
            EnvironmentFailedError: it is missing, or ended otherwise than with 0.
        """
        user: dict[str, Any] = {}
        if owner is not None:
            user = {"user": owner.uid, "group": owner.gid, "extra_groups": []}
        command = [self._program(), "--color", "never", *map(str, arguments)]
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._variables,
                cwd=cwd,
                start_new_session=True,
                **user,
            )
        except OSError as error:
            raise EnvironmentFailedError(
                f"uv cannot be started: {error.strerror or error}", cause=Cause.NOT_STARTED
            ) from None
        self._running.add(process.pid)
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            printed, words, _ = await asyncio.gather(
                process.stdout.read(), self._read_lines(process.stderr), process.wait()
            )
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and the builds that it started
            await process.wait()
            raise
        finally:
            self._running.discard(process.pid)
        if process.returncode != 0:
            raise _failure(words, process.returncode)
        return printed.decode(errors="replace"), words

    async def _read_lines(self, stream: asyncio.StreamReader) -> str:
        """Read to the end, and pass each line on."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        words, begun = "", ""
        while data := await stream.read(_READ_BYTES):
            text = decoder.decode(data)
            words += text
            *lines, begun = (begun + text).split("\n")
            for line in lines:
                self._take_line(line)
        return words

    def _program(self) -> str:
        # Beside this Python, where it was installed with Trainhall; else on the PATH.
        beside = Path(sysconfig.get_path("scripts"), "uv")
        found = (
            str(beside) if beside.exists() else shutil.which("uv", path=self._variables.get("PATH"))
        )
        if found is None:
            raise EnvironmentFailedError(
                "uv is not installed on this host; install it beside the agent (pip install uv)",
                cause=Cause.NOT_STARTED,
            )
        return found


def _failure(words: str, code: int | None) -> EnvironmentFailedError:
    cause = Cause.NOT_STARTED if any(w in words for w in _HOSTS_FAULTS) else Cause.USER_ERROR
    tail = words.encode()[-_TAIL_BYTES:].decode(errors="ignore")
    return EnvironmentFailedError(in_one_line(words) or f"uv left with {code}", tail, cause)


def in_one_line(words: str) -> str:
    """Return what uv says of an error, from its first line on."""
    lines = words.strip().splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith("error:")), 0)
    said = [line.strip().removeprefix("error:").removeprefix("cause:") for line in lines[begin:]]
    text = ": ".join(_joined(lines[begin:], said))
    return text if len(text) <= _MESSAGE_CHARACTERS else text[: _MESSAGE_CHARACTERS - 1] + "…"


def _joined(lines: Sequence[str], said: Sequence[str]) -> list[str]:
    """Join lines that continue the one before: those that begin with neither error nor cause."""
    parts: list[str] = []
    for line, text in zip(lines, said, strict=True):
        if not text.strip():
            continue
        if parts and not line.strip().startswith(("error:", "cause:")):
            parts[-1] += f" {text.strip()}"
        else:
            parts.append(text.strip())
    return parts
