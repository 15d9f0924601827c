"""The way of an attempt to its environment: the job's lock, and what is installed by it."""

import asyncio
import hashlib
import json
import os
import shutil
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path

from trainhall.cluster.agent import threads
from trainhall.cluster.agent.data_dir import DataDir
from trainhall.cluster.agent.environments import host_packages
from trainhall.cluster.agent.environments.locking import (
    Interpreter,
    Locking,
    find_interpreter,
)
from trainhall.cluster.agent.environments.locks import Locks, check_host, lock_of
from trainhall.cluster.agent.environments.progress import PreparationProgress
from trainhall.cluster.agent.environments.store import EnvironmentStore
from trainhall.cluster.agent.environments.uv import EnvironmentFailedError, Uv
from trainhall.cluster.agent.os_support import accounts
from trainhall.cluster.agent.os_support.accounts import Owner
from trainhall.cluster.wire.environment_lock import EnvironmentLock
from trainhall.training.link.failure import Cause
from trainhall.training.link.launch import BuiltEnvironment, Launch

_NOT_OF_THE_AGENT = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME")
"""Variables by which uv would look into the agent's own Python."""


class Prepared:
    """An environment that an attempt is about to use, and what uv said when it was made."""

    def __init__(self, path: Path, log: str, release: Callable[[], None]) -> None:
        self.built = BuiltEnvironment(path=str(path))
        self.log = log
        self.release = release
        """To be called once the attempt's folder names it, or there will be none."""


class Environments:
    """
    Args:
        variables: those that jobs get. uv gets its own (UV_…) from this process's environment, too.
    """

    def __init__(
        self,
        data_dir: DataDir,
        api: Locks,
        variables: Mapping[str, str],
        *,
        store: EnvironmentStore | None = None,
    ) -> None:
        self._api = api
        self._shared = data_dir.is_shared
        self._data_dir = data_dir
        self._store = store or EnvironmentStore(
            data_dir.environments, self._in_use, readable=data_dir.is_shared
        )
        self._store.clean()
        own = {name: value for name, value in os.environ.items() if name.startswith("UV_")}
        passed = {k: v for k, v in variables.items() if k not in _NOT_OF_THE_AGENT}
        defaults = {
            "UV_CACHE_DIR": str(self._store.cache),
            "UV_PYTHON_INSTALL_DIR": str(self._store.pythons),
        }
        self.running: set[int] = set()
        """Pids of what this has started."""
        self._uv = Uv(defaults | passed | own, self.running)

    def _in_use(self) -> list[Path]:
        launches = [launch for _, launch in self._data_dir.launches() if launch is not None]
        return [Path(each.environment.path) for each in launches if each.environment is not None]

    async def prepare(
        self,
        launch: Launch,
        folder: Path,
        copy_code: Callable[[Path], Awaitable[object]],
        report: Callable[[str], None],
        owner: Owner | None = None,
    ) -> Prepared:
        """Return the environment of an attempt, locked and installed first where that is needed.

        Args:
            folder: where files of this work may lie meanwhile; it does not exist.
            copy_code: puts the job's code into a folder that it is given.
            report: takes a few words on the work in progress, whenever they change.
            owner: who owns the job; None: this process.

        Raises:
            EnvironmentFailedError: it cannot be made.
            OSError: this host has no room for it.
        """
        said: list[str] = []
        progress = PreparationProgress(report)
        uv = self._uv.with_output_to(progress.take_line)
        try:
            await asyncio.to_thread(folder.mkdir, parents=True)

            async def make() -> EnvironmentLock:
                progress.begin("locking the versions of its packages")
                return await self._lock(uv, launch, folder, copy_code, owner)

            lock = await lock_of(self._api, launch, make)
            check_host(lock)
            interpreter = await self._interpreter(uv, lock, folder)
            of_host = await asyncio.to_thread(
                partial(host_packages.find, lock.python, torch=lock.torch == "host")
            )
            if lock.torch == "host" and not host_packages.installed_torch():
                raise EnvironmentFailedError(
                    "its lock uses the host's torch, and this host has none: install "
                    "'trainhall[train]' here, or set environment.torch to lock",
                    cause=Cause.NOT_STARTED,
                )

            async def build(part: Path) -> None:
                count = lock.packages
                progress.begin(f"installing {count} package{'s' if count != 1 else ''}")
                said.append(await self._install(uv, lock, interpreter, of_host, part, folder))

            path = await self._store.get(_key(lock, interpreter, of_host), build)
        finally:
            await threads.finish(partial(shutil.rmtree, folder, ignore_errors=True))
        return Prepared(path, "".join(said), partial(self._store.release, path))

    async def _lock(
        self,
        uv: Uv,
        launch: Launch,
        folder: Path,
        copy_code: Callable[[Path], Awaitable[object]],
        owner: Owner | None,
    ) -> EnvironmentLock:
        spec, code = launch.spec.environment, None
        if spec.source is not None and launch.spec.code is not None:
            code = folder / "code"
            await copy_code(code)
        work = folder / "work"
        await asyncio.to_thread(work.mkdir)
        if owner is not None:
            # uv reads files that the job names, links among them: with the job's rights.
            await threads.finish(accounts.hand_over, folder, owner)
        interpreter = await find_interpreter(uv, spec.python, folder)
        return await Locking(uv, spec, work, code, owner).lock(interpreter)

    async def _interpreter(self, uv: Uv, lock: EnvironmentLock, folder: Path) -> Interpreter:
        try:
            return await find_interpreter(uv, lock.python, folder)
        except EnvironmentFailedError as error:
            raise EnvironmentFailedError(
                f"its lock is for Python {lock.python}, which this host does not have: {error}",
                error.log_tail,
                Cause.NOT_STARTED,
            ) from None

    async def _install(
        self,
        uv: Uv,
        lock: EnvironmentLock,
        interpreter: Interpreter,
        of_host: host_packages.HostPackages,
        part: Path,
        folder: Path,
    ) -> str:
        """Make a virtual environment and install the lock; return what uv said."""
        await uv.run(
            "venv", "--relocatable", "--no-project", "--python", interpreter.path, part, cwd=folder
        )
        said = ""
        if lock.requirements.strip():
            file = folder / "lock.txt"
            await asyncio.to_thread(file.write_text, lock.requirements)
            # A build would run code of the job with the rights of this process.
            build = ("--no-build",) if self._shared else ()
            _, said = await uv.run(
                "pip", "install", "--python", part / "bin" / "python", "--no-deps",
                "--compile-bytecode", "--index-strategy", "unsafe-best-match", *build,
                *lock.options, "--requirements", file, cwd=folder,
            )  # fmt: skip
        final = self._store.path(part.name.partition(".")[0])
        await threads.finish(of_host.link_into, part, final)
        # Without the line that names the folder: it is another one by then.
        lines = said.splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith("Using Python"))


def _key(
    lock: EnvironmentLock, interpreter: Interpreter, of_host: host_packages.HostPackages
) -> str:
    parts = [
        lock.requirements, lock.platform, str(interpreter.path), interpreter.full_version,
        of_host.fingerprint,
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
