"""Podman or Docker: it is found, run, awaited and quoted."""

import asyncio
import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainhall.cluster.agent.os_support import programs

ENGINES = ("podman", "docker")
COMMAND_SECONDS = 600.0
"""Time limit of a command: one that hangs holds the devices of its job."""
_PROBE_SECONDS = 10.0
_PROBE_AGAIN_SECONDS = 300.0
_MESSAGE_CHARACTERS = 600
_TAIL_BYTES = 4096


class EngineError(Exception):
    """The engine refused; the message has its words."""

    def __init__(self, message: str, log_tail: str = "", code: int | None = None) -> None:
        super().__init__(message)
        self.log_tail = log_tail
        self.code = code
        """Its exit code, or that of what it ran; None: it could not be started."""


@dataclass(frozen=True)
class Engine:
    name: str
    """One of `ENGINES`."""
    program: str
    """Path of its command."""
    version: str
    running: set[int] = field(default_factory=set, compare=False, repr=False)
    """Pids of its commands that run."""

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    async def run(self, *arguments: str, seconds: float = COMMAND_SECONDS) -> str:
        """Run its command to the end, and return what it printed; if cancelled, it is killed first.

        Args:
            seconds: most time of it.

        Raises:
            EngineError: it cannot be started, takes longer, or ended otherwise than with 0.
        """
        try:
            async with asyncio.timeout(seconds):
                ended = await programs.run(
                    [self.program, *arguments],
                    environment=os.environ, cwd="/", running=self.running,
                )  # fmt: skip
        except TimeoutError:
            raise EngineError(f"{self.name} {arguments[0]} timed out after {seconds:g} s") from None
        except OSError as error:
            raise EngineError(f"{self.name} cannot be started: {error.strerror or error}") from None
        if ended.code != 0:
            words = ended.stderr.decode(errors="replace")
            tail = words.encode()[-_TAIL_BYTES:].decode(errors="ignore")
            message = _last_words(words) or f"{self.name} left with {ended.code}"
            raise EngineError(message, tail, ended.code)
        return ended.stdout.decode(errors="replace")

    async def remove(self, name: str) -> None:
        """Remove a container, with all that runs in it, if it is there."""
        with contextlib.suppress(EngineError):
            await self.run("rm", "--force", name)


class HostEngine:
    """The engine of this host, looked up again from time to time: it may be installed meanwhile."""

    def __init__(self) -> None:
        self.running: set[int] = set()
        """Pids of its commands that run."""
        self._found: Engine | None = None
        self._looked_at: float | None = None

    def find(self) -> Engine | None:
        """Return the engine of this host; None: there is none. It may take a second."""
        now = time.monotonic()
        if self._looked_at is None or now - self._looked_at > _PROBE_AGAIN_SECONDS:
            found = (_probe(name, self.running) for name in ENGINES)
            self._found = next(filter(None, found), None)
            self._looked_at = now
        return self._found


def mount_options(paths: Mapping[str, str], mode: str) -> list[str]:
    """Return the options that mount files and folders of the host, by their path inside.

    Args:
        mode: `ro` or `rw`.

    Raises:
        EngineError: a path cannot be written in such an option.
    """
    options = []
    for inside, outside in paths.items():
        if any(character in path for path in (inside, outside) for character in ",:\n"):
            raise EngineError(f"{outside} cannot be mounted: its name has a comma or a colon")
        options += ["--volume", f"{outside}:{inside}:{mode}"]
    return options


def _probe(name: str, running: set[int]) -> Engine | None:
    program = shutil.which(name)
    if program is None:
        return None
    # Docker's command is of no use without its server.
    side = "Server" if name == "docker" else "Client"
    command = [program, "version", "--format", f"{{{{.{side}.Version}}}}"]
    try:
        printed = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
            timeout=_PROBE_SECONDS, cwd="/",
        ).stdout  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return Engine(name, program, printed.strip()[:32], running) if printed.strip() else None


def _last_words(words: str) -> str:
    """Return the line of an error, without what the engine says before it."""
    lines: Sequence[str] = [line.strip() for line in words.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    text = (errors or lines or [""])[-1]
    text = text.removeprefix("Error: ").removeprefix("Error response from daemon: ")
    return text if len(text) <= _MESSAGE_CHARACTERS else text[: _MESSAGE_CHARACTERS - 1] + "…"
