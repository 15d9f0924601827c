"""The way of an attempt to its container: the image that the job has pinned, and mounts."""

import asyncio
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import trainhall
from trainhall.cluster.agent import threads
from trainhall.cluster.agent.containers import images
from trainhall.cluster.agent.containers.engine import Engine, EngineError, HostEngine
from trainhall.cluster.agent.environments import host_packages
from trainhall.cluster.agent.environments.locking import host_platform
from trainhall.cluster.agent.environments.locks import Locks, check_host, lock_of
from trainhall.cluster.agent.environments.uv import EnvironmentFailedError
from trainhall.cluster.wire.environment_lock import EnvironmentLock
from trainhall.training.link.failure import Cause
from trainhall.training.link.launch import AttemptContainer, Launch

_HOSTS_FAULTS = (
    "no space left", "no such host", "connection refused", "timeout", "timed out", "cannot connect",
)  # fmt: skip
"""Words of what is no mistake of the job's own."""
_PATH_FILE = "trainhall-host.pth"


class PreparedContainer(NamedTuple):
    container: AttemptContainer
    log: str
    """For the job's log."""


class ImageEnvironments:
    """
    Args:
        folder: for files that containers read.
        confined: jobs have other users than this agent.
    """

    def __init__(self, folder: Path, api: Locks, engine: HostEngine, *, confined: bool) -> None:
        self._confined = confined
        self._folder = folder
        self._api = api
        self._engine = engine
        self._known: dict[str, PreparedContainer] = {}
        """By the image's digest."""

    async def prepare(self, launch: Launch, report: Callable[[str], None]) -> PreparedContainer:
        """Return the container of an attempt, whose image is on this host by then.

        Args:
            report: takes a few words on the work that begins.

        Raises:
            EnvironmentFailedError: there is no such image, or it cannot be used.
            OSError: this host has no room for it.
        """
        reference = launch.spec.environment.image
        assert reference is not None
        engine = await asyncio.to_thread(self._engine.find)
        if engine is None:
            raise EnvironmentFailedError(
                "this host has no container engine: install Podman or Docker, or leave out "
                "environment.image",
                cause=Cause.NOT_STARTED,
            )
        report(f"fetching the image {reference}")
        try:

            async def pin() -> EnvironmentLock:
                pinned = await images.fetch(engine, reference)
                found = await images.describe(engine, pinned, confined=self._confined)
                return EnvironmentLock(
                    python=found.minor_version, platform=host_platform(), torch="lock",
                    image=pinned, requirements="",
                )  # fmt: skip

            lock = await lock_of(self._api, launch, pin)
            check_host(lock)
            if lock.image is None:
                raise EnvironmentFailedError("its lock is of another kind of environment")
            pinned = await images.fetch(engine, lock.image)
            if pinned not in self._known:
                self._known[pinned] = await self._describe(engine, pinned)
        except EngineError as error:
            message = f"image {reference}: {error}"
            faulty = any(words in str(error).lower() for words in _HOSTS_FAULTS)
            cause = Cause.NOT_STARTED if faulty else Cause.USER_ERROR
            raise EnvironmentFailedError(message, error.log_tail, cause) from None
        return self._known[pinned]

    async def _describe(self, engine: Engine, pinned: str) -> PreparedContainer:
        image = await images.describe(engine, pinned, confined=self._confined)
        own = await asyncio.to_thread(partial(host_packages.find, image.minor_version, torch=False))
        links = await threads.finish(self._link, own)
        mounts = {str(path): str(path) for path in _roots(own)} | {str(links): str(links)}
        mounts[f"{image.packages}/{_PATH_FILE}"] = str(links / _PATH_FILE)
        refusal = await images.refusal_of_import(
            engine, image, mounts, "trainhall.training.sdk.api", confined=self._confined
        )
        log = f"Image {pinned} with Python {image.python_version}\n"
        if refusal is not None:
            log += f"`import trainhall` does not work in it: {refusal}\n"
        return PreparedContainer(
            AttemptContainer(image=pinned, python=image.python, mounts=mounts), log
        )

    def _link(self, own: host_packages.HostPackages) -> Path:
        """Return a folder of links to packages of this host, with the file that names it."""
        links = self._folder / f"{host_packages.LINKS}-{own.fingerprint[:32]}"
        if links.is_dir():
            return links
        part = links.with_name(f"{links.name}.{os.getpid()}.tmp")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for name, target in own.links.items():
            (part / name).symlink_to(target)
        (part / _PATH_FILE).write_text(f"{links}\n")
        # Processes of the job's user read them.
        (part / _PATH_FILE).chmod(0o644)
        part.chmod(0o755)
        part.rename(links)
        return links


def _roots(own: host_packages.HostPackages) -> list[Path]:
    """Return the folders of this host that links lead to."""
    package = Path(trainhall.__path__[0])
    # In a working copy the package consists of links to folders beside it.
    parts = {path.resolve() for path in package.iterdir() if path.is_symlink()}
    others = {path.parent for name, path in own.links.items() if name != "trainhall"}
    return sorted({package, *parts, *others})
