"""The process of a session: with the user, the limits and the network of the attempt.

python -m trainhall.cluster.agent.tunnels.inside FOLDER FD [--confinement JSON]

An agent starts one for each tunnel, and passes messages on. What users ask for happens in here,
with the rights of the job and no others. It ends, with all that it started, when the agent's end of
the socket is closed; and it has the mark of the attempt, so that the shim ends it with the attempt.
"""

import argparse
import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import psutil
from pydantic import ValidationError

from trainhall.cluster.agent.containers.processes import ContainerProcesses
from trainhall.cluster.agent.os_support import accounts, linux, processes
from trainhall.cluster.agent.shim import rank_process
from trainhall.cluster.agent.shim.confinement import Confinement
from trainhall.cluster.agent.shim.hang import stack_dumps
from trainhall.cluster.agent.tunnels.command import CommandError, RunningCommand
from trainhall.cluster.agent.tunnels.local_socket import LocalSocket
from trainhall.cluster.wire.sessions import (
    ERRORS,
    INPUT,
    OUTPUT,
    AnySession,
    ExecSession,
    ForwardSession,
    Resize,
    StacksSession,
    ToAgent,
)
from trainhall.cluster.wire.tunnel import (
    Stream,
    Tunnel,
    TunnelClosedError,
    TunnelError,
    parse,
    splice,
)
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.launch import Launch, Rendezvous, load_launch
from trainhall.training.link.regular_file import read_regular
from trainhall.training.link.status import ShimStatus
from trainhall.training.process.forked import PADDING_VARIABLE

HANGUP_SECONDS = 1.0
"""Time for what a session leaves behind to end by itself."""
MAX_STATUS_BYTES = 4 * 2**20
SHELLS = ("bash", "sh")
_INNER_SHELL = ["sh", "-c", "command -v bash >/dev/null && exec bash; exec sh"]
CLONE_NEWNET = 0x40000000
_OF_THE_RANK = ("TRAINHALL_WRITER", PADDING_VARIABLE)
"""Variables by which a process speaks for the rank."""


class SessionError(Exception):
    """The session cannot be; the message is for the user."""


class RanksOfHost:
    """The live ranks of an attempt on this host, as its shim reports them."""

    def __init__(self, folder: AttemptFolder) -> None:
        self._folder = folder
        try:
            # Its files may be links by now: they are read as the job, before this process is it.
            with accounts.acting_as(accounts.owner_of(folder.path)):
                data = read_regular(folder.status, MAX_STATUS_BYTES)
                self.launch = load_launch(folder.launch)
            status = ShimStatus.model_validate_json(data)
        except (OSError, ValueError):
            raise SessionError("no rank of the job has started on this host yet") from None
        self.rendezvous = status.rendezvous or self.launch.rendezvous
        self.pids = {
            state.rank: state.pid
            for state in status.ranks
            if state.pid is not None and state.finished_at is None
        }

    def pid(self, rank: int) -> int:
        """Return the process of a rank.

        Raises:
            SessionError: it does not run here.
        """
        if rank not in self.pids:
            raise SessionError(f"rank {rank} does not run on this host at the moment")
        return self.pids[rank]

    def environment(self, rank: int) -> dict[str, str]:
        """Return the environment of a rank: a script's own, and a task's as its shim makes it."""
        with contextlib.suppress(psutil.Error, OSError):
            env = psutil.Process(self.pid(rank)).environ()
            # In a container it has been executed, as a script is.
            if self.launch.spec.script is None and self.launch.container is None:
                env = self._task_environment(self.launch, rank, env)
            kept = {key: value for key, value in env.items() if key not in _OF_THE_RANK}
            return {**kept, processes.MARK: str(self._folder.path)}
        raise SessionError(f"rank {rank} has just ended")

    def work_folder(self, rank: int) -> str:
        """Return the folder that a rank is in now; in a container the one that it began in."""
        if self.launch.container is not None:
            return self.launch.code or str(self._folder.path)
        now = f"/proc/{self.pid(rank)}/cwd"
        # There is none on another system, or where it was removed.
        return now if os.path.isdir(now) else self.launch.code or str(self._folder.path)

    def _task_environment(self, launch: Launch, rank: int, base: dict[str, str]) -> dict[str, str]:
        slot = next((slot for slot in launch.ranks if slot.rank == rank), None)
        if slot is None:
            return base
        meeting = self.rendezvous or Rendezvous(address=launch.address, port=0)
        return rank_process.environment(base, self._folder, launch, slot, meeting)


class SessionProcess:
    """Serves one session."""

    def __init__(self, folder: AttemptFolder, connection: LocalSocket, first: AnySession) -> None:
        self._folder = folder
        self._session = first
        self._command: RunningCommand | None = None
        self._pending: Resize | None = None
        self._connections: set[asyncio.Task[None]] = set()
        is_forward = isinstance(first, ForwardSession)
        self._tunnel = Tunnel(
            connection, self._take_message, self._take_stream if is_forward else None
        )
        # Before anything is received: the user's side may send at once.
        self._streams = (
            [self._tunnel.stream(number) for number in (INPUT, OUTPUT, ERRORS)]
            if isinstance(first, ExecSession)
            else []
        )

    async def run(self) -> None:
        """Serve until it is over or the user's side has left."""
        receiving = asyncio.create_task(self._tunnel.run())
        serving = asyncio.create_task(self._serve())
        tasks = {receiving, serving}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*tasks, *self._connections):
                task.cancel()
            await asyncio.gather(*tasks, *self._connections, return_exceptions=True)

    async def _serve(self) -> None:
        with contextlib.suppress(TunnelClosedError):
            try:
                match self._session:
                    case ExecSession():
                        await self._execute(self._session)
                    case ForwardSession():
                        RanksOfHost(self._folder).pid(self._session.rank)
                        await self._tunnel.send({"type": "started"})
                        await asyncio.Event().wait()
                    case StacksSession():
                        await self._send_stacks(self._session)
            except SessionError as error:
                await self._tunnel.send({"type": "error", "detail": str(error)})

    async def _execute(self, session: ExecSession) -> None:
        ranks = RanksOfHost(self._folder)
        environment = ranks.environment(session.rank)
        container = None
        if ranks.launch.container is not None:
            container = ContainerProcesses(self._folder.path)
        shell = _INNER_SHELL if container is not None else [_shell(environment)]
        command = session.command or shell
        folder = ranks.work_folder(session.rank)
        try:
            running = await RunningCommand.start(
                self._streams, command, session.terminal, environment, folder, container
            )
        except CommandError as error:
            await self._tunnel.send({"type": "error", "detail": str(error)})
            await self._tunnel.send({"type": "exit", "code": error.code})
            return
        self._command = running
        if self._pending is not None:
            running.resize(self._pending.rows, self._pending.columns)
        await self._tunnel.send({"type": "started"})
        code = await running.wait()
        self._command = None
        await self._tunnel.send({"type": "exit", "code": code})

    def _take_message(self, message: dict[str, Any]) -> None:
        try:
            resize = Resize.model_validate(message)
        except ValidationError:
            return  # of another version, perhaps
        self._pending = resize
        if self._command is not None:
            self._command.resize(resize.rows, resize.columns)

    def _take_stream(self, stream: Stream) -> None:
        task = asyncio.create_task(self._connect(stream))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _connect(self, stream: Stream) -> None:
        assert isinstance(self._session, ForwardSession)
        port = self._session.port
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            with contextlib.suppress(TunnelClosedError):
                await stream.reset(f"127.0.0.1:{port} on the job's host: {why}")
            return
        await splice(stream, reader, writer)

    async def _send_stacks(self, session: StacksSession) -> None:
        ranks = RanksOfHost(self._folder)
        pids = {rank: pid for rank, pid in ranks.pids.items() if rank in session.ranks}
        stopped = {rank for rank, pid in pids.items() if _is_stopped(pid)}
        found = await asyncio.to_thread(stack_dumps.collect, self._folder, pids, stopped)
        for rank, text in sorted(found.items()):
            await self._tunnel.send(
                {"type": "stacks", "rank": rank, "pid": pids[rank], "text": text}
            )
        await self._tunnel.send({"type": "exit", "code": 0})


def _shell(environment: dict[str, str]) -> str:
    path = environment.get("PATH", os.defpath)
    return next((shell for shell in SHELLS if shutil.which(shell, path=path)), SHELLS[-1])


def _is_stopped(pid: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    return False


def enter_network(folder: AttemptFolder, rank: int, uid: int) -> None:
    """Enter the network of a rank, if it is another one than this process's.

    Args:
        uid: the job's user. The rank's process is looked up in a file of the job, and may be
            nobody else's.

    Raises:
        SessionError: this process may not.
    """
    if not linux.IS_LINUX:
        return
    place = Path(f"/proc/{RanksOfHost(folder).pid(rank)}/ns/net")
    try:
        theirs = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return  # it has just ended, which is found out later
    try:
        if os.fstat(theirs).st_ino == os.stat("/proc/self/ns/net").st_ino:
            return
        is_own = place.parents[1].stat().st_uid == uid
        if not is_own or ctypes.CDLL(None).setns(theirs, CLONE_NEWNET):
            raise SessionError("the rank has a network of its own, which this agent may not enter")
    finally:
        os.close(theirs)


def end_all() -> None:
    """End all that this session has started, however detached."""
    left = processes.descendants()
    processes.send(left, signal.SIGHUP)
    processes.send(left, signal.SIGCONT)
    until = time.monotonic() + HANGUP_SECONDS
    while left := processes.descendants():
        if time.monotonic() > until:
            processes.send(left, signal.SIGKILL)
        time.sleep(0.02)
        processes.reap_all()


async def _main(folder: AttemptFolder, fd: int, confinement: Confinement) -> None:
    connection = await LocalSocket.connect(socket.socket(fileno=fd))
    try:
        text = await connection.receive()
        session = ToAgent.validate_python(parse(text if isinstance(text, str) else ""))
        try:
            if not isinstance(session, StacksSession):
                user = confinement.user
                uid = user.uid if user is not None else os.geteuid()
                enter_network(folder, session.rank, uid)
            confinement.enter()
        except SessionError as error:
            await Tunnel(connection, lambda _: None).send({"type": "error", "detail": str(error)})
            return
        linux.adopt_orphans()
        await SessionProcess(folder, connection, session).run()
    except (TunnelClosedError, TunnelError, ValidationError) as error:
        print(f"trainhall: a session cannot begin: {error}", file=sys.stderr)  # noqa: T201
    finally:
        # First what runs here: the user's side takes its end for that of all.
        end_all()
        connection.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m trainhall.cluster.agent.tunnels.inside")
    parser.add_argument("folder", type=Path)
    parser.add_argument("fd", type=int)
    parser.add_argument("--confinement", default="{}")
    options = parser.parse_args()
    linux.set_name("session")
    confinement = Confinement.model_validate_json(options.confinement)
    asyncio.run(_main(AttemptFolder(options.folder), options.fd, confinement))
    return 0


if __name__ == "__main__":
    sys.exit(main())
