"""The container of an attempt: started before its shim, and removed with the attempt.

Inside are the processes of the ranks, outside is the shim. They share the namespaces of processes,
network and IPC with the host, so ranks meet, are signalled and are watched as on the host; files,
libraries and rights are the container's own. It ends when its shim does (`process_server`).
"""

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from trainhall.cluster.agent.containers import process_server
from trainhall.cluster.agent.containers.engine import (
    Engine,
    EngineError,
    HostEngine,
    mount_options,
)
from trainhall.cluster.agent.os_support import accounts
from trainhall.cluster.agent.os_support.accounts import Owner
from trainhall.cluster.agent.os_support.processes import MARK
from trainhall.training.event_log import EventLogger
from trainhall.training.link.launch import AttemptContainer

logger = EventLogger(__name__)

MAX_PIDS = 32_768
ALL_GPUS = "nvidia.com/gpu=all"
"""By CDI. As on the host, CUDA_VISIBLE_DEVICES says which of them are the ranks'."""
_AGENT, _ATTEMPT = "trainhall.agent", "trainhall.attempt"


class AttemptContainers:
    """
    Args:
        data_dir: of the agent; its containers have it as a label.
        confined: their processes get no privileges, as those of another user than the agent's.
    """

    def __init__(self, data_dir: Path, engine: HostEngine, *, confined: bool) -> None:
        self._data_dir = data_dir
        self._engine = engine
        self._confined = confined
        self.monitors: set[int] = set()
        """Pids of Podman's monitors: children of this agent that live as long as a container."""

    async def start(
        self,
        folder: Path,
        container: AttemptContainer,
        user: Owner,
        writable: Sequence[Path],
        *,
        gpus: bool,
        memory: int | None,
    ) -> None:
        """Start the container of an attempt, in place of one that was started before.

        Args:
            folder: the attempt's.
            user: who its processes are.
            writable: folders of the host that they may write to.
            memory: limit in bytes; None: that of the host.

        Raises:
            EngineError: it cannot be started.
        """
        engine = await self._required()
        await self.remove(folder)
        rootless = engine.name == "podman" and os.geteuid() != 0
        # It maps none but the user's first group.
        groups = [] if rootless else await asyncio.to_thread(accounts.groups_of, user)
        pid_file = self._data_dir / f"{name_of(folder)}.pid"
        arguments = [
            "run", "--detach", "--rm", "--pull", "never", "--log-driver", "none",
            "--name", name_of(folder),
            "--label", f"{_AGENT}={self._data_dir}", "--label", f"{_ATTEMPT}={folder}",
            "--network", "host", "--pid", "host", "--ipc", "host",
            "--user", f"{user.uid}:{user.gid}",
            *(part for gid in groups if gid != user.gid for part in ("--group-add", str(gid))),
            "--workdir", "/",
            "--security-opt", "no-new-privileges", "--security-opt", "label=disable",
            "--pids-limit", str(MAX_PIDS), "--env", f"{MARK}={folder}",
            *(("--cap-drop", "all") if self._confined else ()),
            *(("--memory", str(memory)) if memory is not None else ()),
            *(("--device", ALL_GPUS) if gpus else ()),
            *(("--conmon-pidfile", str(pid_file)) if engine.name == "podman" else ()),
            *(("--userns", "keep-id") if engine.name == "podman" and user.uid != 0
              and not self._confined else ()),
            *mount_options({str(path): str(path) for path in writable}, "rw"),
            *mount_options(container.mounts, "ro"),
            "--entrypoint", container.python, container.image,
            process_server.__file__, str(folder),
        ]  # fmt: skip
        try:
            await engine.run(*arguments)
            await asyncio.to_thread(self._note_monitor, pid_file)
        finally:
            await asyncio.to_thread(pid_file.unlink, missing_ok=True)

    async def remove(self, folder: Path) -> None:
        """Remove the container of an attempt, with all that runs in it, if it is still there."""
        await self._remove(name_of(folder))

    async def remove_others(self, folders: Callable[[], Iterable[Path]]) -> None:
        """Remove the containers that an earlier agent has left.

        Args:
            folders: returns those of the attempts on this host, whose containers stay.
        """
        engine = await asyncio.to_thread(self._engine.find)
        if engine is None:
            return
        wanted = f"label={_AGENT}={self._data_dir}"
        try:
            found = await engine.run("ps", "--all", "--filter", wanted, "--format", "{{.Names}}")
        except EngineError as error:
            logger.warning("containers_unknown", error=error)
            return
        # Asked now: the container of an attempt that has just begun may be among them.
        for name in set(found.split()) - {name_of(folder) for folder in folders()}:
            logger.info("container_removed", name=name, reason="its attempt is over")
            await self._remove(name)

    async def _remove(self, name: str) -> None:
        engine = await asyncio.to_thread(self._engine.find)
        if engine is not None:
            await engine.remove(name)

    async def _required(self) -> Engine:
        engine = await asyncio.to_thread(self._engine.find)
        if engine is None:
            raise EngineError("this host has neither Podman nor Docker any more")
        return engine

    def _note_monitor(self, pid_file: Path) -> None:
        self.monitors = {pid for pid in self.monitors if Path(f"/proc/{pid}").exists()}
        with contextlib.suppress(OSError, ValueError):
            self.monitors.add(int(pid_file.read_text()))


def name_of(folder: Path) -> str:
    """Return the name of an attempt's container. Several agents of a host may each have a part of
    an attempt."""
    place = hashlib.sha256(str(folder).encode()).hexdigest()[:12]
    return f"trainhall-{folder.parent.name}-{folder.name}-{place}"
