"""A command of `exec`, in a terminal of its own or on pipes, with the streams of its tunnel."""

import asyncio
import contextlib
import fcntl
import os
import struct
import termios
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from trainhall.cluster.agent.containers.processes import ContainerProcesses, InnerProcess
from trainhall.cluster.agent.os_support import linux
from trainhall.cluster.wire.sessions import Terminal
from trainhall.cluster.wire.tunnel import CHUNK, Stream, StreamResetError, TunnelClosedError

EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127
QUIET_SECONDS = 0.3
"""Once the command has ended, and what it left behind has written nothing for so long, its output
is over."""


class CommandError(Exception):
    """The command cannot be started. Shells exit with `code` then."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Descriptor:
    """One end of a pipe or of a terminal, read and written without blocking the process."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    async def read(self) -> bytes:
        """Return what there is to read; none: the other side has ended."""
        while True:
            try:
                return os.read(self._fd, CHUNK)
            except BlockingIOError:
                await self._ready(self._loop.add_reader, self._loop.remove_reader)
            except OSError:
                return b""  # EIO: nobody has the terminal open any more

    async def write(self, data: bytes) -> None:
        """Write all of it.

        Raises:
            OSError: nobody reads it any more.
        """
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._fd, view) :]
            except BlockingIOError:
                await self._ready(self._loop.add_writer, self._loop.remove_writer)

    async def _ready(self, add: Callable[..., object], remove: Callable[[int], object]) -> None:
        ready = asyncio.Event()
        add(self._fd, ready.set)
        try:
            await ready.wait()
        finally:
            remove(self._fd)

    def set_size(self, rows: int, columns: int) -> None:
        """Set the size of a terminal, of which the kernel tells what runs in it."""
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class _Output:
    """Sends what a command writes."""

    def __init__(self, source: Descriptor, stream: Stream) -> None:
        self._source = source
        self._stream = stream
        self.pieces = 0
        self.waits = True
        """Nothing has come that is yet to be sent."""

    async def run(self) -> None:
        with contextlib.suppress(StreamResetError, TunnelClosedError):
            while data := await self._source.read():
                self.pieces += 1
                self.waits = False
                await self._stream.write(data)
                self.waits = True

    async def end(self) -> None:
        with contextlib.suppress(TunnelClosedError):
            await self._stream.end()


class RunningCommand:
    """A command that runs, and passes its streams on."""

    def __init__(
        self,
        process: asyncio.subprocess.Process | InnerProcess,
        terminal: Descriptor | None,
        descriptors: Sequence[Descriptor],
        streams: Sequence[Stream],
    ) -> None:
        target, *sources = descriptors
        from_user, *to_user = streams
        self._process = process
        self._terminal = terminal
        self._descriptors = descriptors
        self._input = asyncio.create_task(self._write_input(from_user, target))
        self._outputs = [
            _Output(source, stream) for source, stream in zip(sources, to_user, strict=False)
        ]

    @classmethod
    async def start(
        cls,
        streams: Sequence[Stream],
        command: Sequence[str],
        terminal: Terminal | None,
        environment: Mapping[str, str],
        folder: str,
        container: ContainerProcesses | None = None,
    ) -> Self:
        """Start a command, as the leader of a session of its own.

        Args:
            streams: its input, its output and its error output.
            container: that it runs in; None: on the host.

        Raises:
            CommandError: it cannot be started.
        """
        ours: list[Descriptor] = []
        if terminal is not None:
            master, slave = os.openpty()
            environment = {**environment, "TERM": terminal.term}
            theirs = [slave] * 3
            ours = [Descriptor(master)]
            ours[0].set_size(terminal.rows, terminal.columns)
        else:
            pipes = [os.pipe() for _ in range(3)]
            theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
            ours = [Descriptor(pipes[0][1]), Descriptor(pipes[1][0]), Descriptor(pipes[2][0])]
        process: asyncio.subprocess.Process | InnerProcess
        try:
            if container is None:
                process = await _start_here(command, environment, folder, theirs, terminal)
            else:
                streams_inside = theirs[0], theirs[1], theirs[2]
                process = await asyncio.to_thread(
                    container.execute, command, environment, folder, streams_inside,
                    terminal=terminal is not None,
                )  # fmt: skip
        except (OSError, ValueError) as error:
            for descriptor in ours:
                descriptor.close()
            raise _cannot_start(command[0], error) from None
        finally:
            for fd in set(theirs):
                os.close(fd)
        if terminal is not None:
            return cls(process, ours[0], [ours[0], ours[0]], streams)
        return cls(process, None, ours, streams)

    def resize(self, rows: int, columns: int) -> None:
        if self._terminal is not None:
            self._terminal.set_size(rows, columns)

    async def wait(self) -> int:
        """Wait until it has ended and its output was sent; return its exit code, as of a shell."""
        running = {asyncio.create_task(output.run()) for output in self._outputs}
        try:
            code = await self._process.wait()
            while running:
                before = self._pieces
                _, running = await asyncio.wait(running, timeout=QUIET_SECONDS)
                if before == self._pieces and all(output.waits for output in self._outputs):
                    break  # what it left behind keeps its output open
            for output in self._outputs:
                await output.end()
        finally:
            for task in (self._input, *running):
                task.cancel()
            await asyncio.gather(self._input, *running, return_exceptions=True)
            for descriptor in self._descriptors:
                descriptor.close()
        return code if code >= 0 else 128 - code

    @property
    def _pieces(self) -> int:
        return sum(output.pieces for output in self._outputs)

    async def _write_input(self, stream: Stream, target: Descriptor) -> None:
        try:
            while data := await stream.read():
                await target.write(data)
            if self._terminal is None:
                target.close()
        except (StreamResetError, TunnelClosedError):
            return
        except OSError:
            with contextlib.suppress(TunnelClosedError):
                await stream.reset("the command reads no more")


async def _start_here(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: str,
    streams: Sequence[int],
    terminal: Terminal | None,
) -> asyncio.subprocess.Process:
    """Start a command as a child of this process, with which it ends."""
    parent = os.getpid()

    def before_exec() -> None:
        linux.die_with_parent(parent)
        if terminal is not None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    return await asyncio.create_subprocess_exec(
        *command,
        stdin=streams[0], stdout=streams[1], stderr=streams[2],
        env=dict(environment), cwd=folder, start_new_session=True,
        preexec_fn=before_exec,
    )  # fmt: skip


def _cannot_start(program: str, error: Exception) -> CommandError:
    if isinstance(error, FileNotFoundError):
        return CommandError(f"there is no program {program!r} on this host", EXIT_NOT_FOUND)
    why = getattr(error, "strerror", None) or str(error)
    return CommandError(f"{program!r} cannot be run: {why}", EXIT_NOT_EXECUTABLE)
