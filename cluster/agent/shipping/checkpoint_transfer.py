"""Checkpoints between this host and the coordinator's store, where nodes share no storage."""

import asyncio
import hashlib
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from trainhall.cluster.agent.coordinator_link.http_api import (
    RefusedError,
    UnavailableError,
    Uploading,
)
from trainhall.cluster.agent.os_support.accounts import Owner, acting_as, hand_over, reached
from trainhall.cluster.backoff import Backoff
from trainhall.cluster.waiting import end_tasks
from trainhall.training.checkpoint.format.errors import BadCheckpointError, NotRemovedError, Problem
from trainhall.training.checkpoint.format.manifest import (
    FileRecord,
    Manifest,
    read_manifest,
    verify_files,
)
from trainhall.training.checkpoint.format.names import MANIFEST, parse_name, scan
from trainhall.training.checkpoint.format.removal import remove_checkpoint, vanish
from trainhall.training.event_log import EventLogger

logger = EventLogger(__name__)
_T = TypeVar("_T")

RETRY_LIMIT_SECONDS = 10.0
FILES_AT_ONCE = 4
"""Files of a checkpoint in flight at once: each waits for the coordinator's disk."""
KEPT_COPIES = 2
"""Uploaded checkpoints that this host keeps: the newest, for a quick restart, and its fallback.
The coordinator decides what else is kept, and for how long."""


class CheckpointUnavailableError(Exception):
    """None of the checkpoints to start from is available; the message says why."""

    def __init__(self, lacking: dict[str, str], *, is_damaged: bool) -> None:
        reasons = "; ".join(f"{name}: {why}" for name, why in lacking.items())
        verdict = "is intact" if is_damaged else "could be fetched"
        super().__init__(f"no checkpoint to start from {verdict}: {reasons}")
        self.is_damaged = is_damaged
        """The coordinator found each of them damaged in its store: no host is to blame."""


class Fetching(Protocol):
    async def verify(self, job_id: str, name: str) -> list[str]: ...

    async def get_file(self, job_id: str, name: str, path: str, to: Path) -> tuple[int, str]: ...


async def upload(
    api: Uploading, folder: Path, job_id: str, event: dict[str, Any], owner: Owner | None = None
) -> str | None:
    """Upload the checkpoint of a rank's event; None once the coordinator has all of it.

    Older copies on this host are removed. Events are sent in order, so these were uploaded before.

    Args:
        owner: as whom the files are read; None: as this process.

    Returns:
        Why it cannot be uploaded, now or ever.

    Raises:
        UnavailableError: try again; what arrived is skipped by the coordinator.
    """
    name = str(event.get("name", ""))
    if parse_name(name) is None:
        return f"{name!r} is not a checkpoint's name"
    why_not = None
    try:
        if await asyncio.to_thread(_as(owner, (folder / name).is_dir)):
            await _send(api, folder / name, job_id, owner)
        # Without a copy here it was uploaded earlier, and a coordinator that has it agrees.
        await api.commit(job_id, name)
    except (OSError, BadCheckpointError) as error:
        why_not = str(error)
    except RefusedError as error:
        why_not = error.detail
    await asyncio.to_thread(_as(owner, partial(_remove_older, folder, name)))
    return why_not


def _as(owner: Owner | None, work: Callable[[], _T]) -> Callable[[], _T]:
    """Return the work, done with an owner's rights."""

    def done() -> _T:
        with acting_as(owner):
            return work()

    return done


async def _send(api: Uploading, path: Path, job_id: str, owner: Owner | None) -> None:
    manifest = await asyncio.to_thread(_as(owner, partial(_manifest_of, path, job_id, path.name)))
    turns = asyncio.Semaphore(FILES_AT_ONCE)

    async def put(file: FileRecord) -> None:
        async with turns:
            await api.put_file(job_id, path.name, file.path, path / file.path, file.sha256, owner)

    puts = [asyncio.ensure_future(put(file)) for file in manifest.files]
    try:
        await asyncio.gather(*puts)
    finally:
        await end_tasks(puts)
    data = await asyncio.to_thread(_as(owner, (path / MANIFEST).read_bytes))
    digest = hashlib.sha256(data).hexdigest()
    await api.put_file(job_id, path.name, MANIFEST, path / MANIFEST, digest, owner)


def _remove_older(folder: Path, newest: str) -> None:
    """Remove all but `KEPT_COPIES` of the copies up to the `newest`."""
    names = [found.path.name for found in scan(folder)]
    behind = names[names.index(newest) :] if newest in names else []
    for name in behind[KEPT_COPIES:]:
        try:
            remove_checkpoint(folder / name)
        except (OSError, NotRemovedError) as error:
            logger.warning("old_copy_not_removed", error=error)


@dataclass(frozen=True)
class Fetched:
    names: list[str]
    """Checkpoints in the folder, best first; the first was verified."""
    lacking: dict[str, str]
    """Better checkpoints that could not be fetched, with the reason."""


async def fetch(
    api: Fetching,
    folder: Path,
    job_id: str,
    names: list[str],
    *,
    other_hosts: bool = False,
    needed: bool = True,
    owner: Owner | None = None,
) -> Fetched:
    """Fetch the best of `names` into `folder`, verified.

    A copy that is there already is verified too, and fetched again if it is damaged.

    Args:
        other_hosts: others start from the same names. Where the best one is a copy of this host
            they may not get it, the coordinator's being damaged; so the next one is made sure of.
        needed: there is no other way to start. Ranks that join others are handed what these hold;
            should none of them be left, they report what is missing.
        owner: whose the folder is; None: this process's.

    Raises:
        CheckpointUnavailableError: none can be had, and one is needed.
    """
    lacking: dict[str, str] = {}
    damaged: set[str] = set()
    sure: list[str] = []
    for name in names:
        if parse_name(name) is None:
            lacking[name] = "this is not a checkpoint's name"
            continue
        try:
            is_local = await asyncio.to_thread(_as(owner, partial(_is_good, folder / name, job_id)))
            if not is_local:
                await _retry(partial(_fetch_one, api, folder, job_id, name, owner), name)
        except (RefusedError, BadCheckpointError) as error:
            problems = await _stored_problems(api, job_id, name)
            lacking[name] = str(error)
            if problems:
                damaged.add(name)
                lacking[name] = f"damaged in the coordinator's store: {problems[0]}"
            logger.warning("checkpoint_skipped", job=job_id, checkpoint=name, error=lacking[name])
            continue
        sure.append(name)
        if len(sure) == 2 or not (is_local and other_hosts):
            break
    if not sure and needed:
        raise CheckpointUnavailableError(lacking, is_damaged=damaged == set(lacking))
    rest = names[names.index(sure[-1]) + 1 :] if sure else []
    with acting_as(owner):
        others = [name for name in rest if (folder / name / MANIFEST).is_file()]
    return Fetched(sure + others, lacking)


def _is_good(path: Path, job_id: str) -> bool:
    if not path.exists():
        return False
    try:
        verified(path, job_id)
    except BadCheckpointError as error:
        logger.warning(
            "checkpoint_damaged", path=path, error=error.problems[0], action="fetch again"
        )
        return False
    return True


def verified(path: Path, job_id: str) -> Manifest:
    """Return the manifest of a checkpoint's folder after hashing every file.

    Raises:
        BadCheckpointError: a file is not, or the manifest is that of another job or checkpoint.
    """
    manifest = _manifest_of(path, job_id, path.name)
    if problems := verify_files(path, manifest.files):
        raise BadCheckpointError(problems)
    return manifest


async def _stored_problems(api: Fetching, job_id: str, name: str) -> list[str]:
    """Return the problems of the coordinator's own copy, which it then no longer offers."""
    try:
        return await _retry(partial(api.verify, job_id, name), name)
    except RefusedError as error:  # it was deleted, or the coordinator is of an older version
        logger.info("checkpoint_not_verified", job=job_id, checkpoint=name, error=error.detail)
        return []


async def _retry(ask: Callable[[], Awaitable[_T]], name: str) -> _T:
    """Retry until the coordinator, which may be away for long, answers."""
    backoff = Backoff(0.2, RETRY_LIMIT_SECONDS)
    while True:
        try:
            return await ask()
        except UnavailableError as error:
            logger.info("checkpoint_transfer_waits", checkpoint=name, error=error)
        await asyncio.sleep(backoff.next())


async def _fetch_one(
    api: Fetching, folder: Path, job_id: str, name: str, owner: Owner | None
) -> None:
    # Nothing is made durable here: after a crash the copy is verified before it is used.
    part = folder / f".fetch-{name}"
    if owner is not None:
        # Where processes of the owner cannot lead the download to another place.
        part = folder.with_name(f".fetch-{folder.name}-{name}")
    await asyncio.to_thread(shutil.rmtree, part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        await api.get_file(job_id, name, MANIFEST, part / MANIFEST)
        manifest = await asyncio.to_thread(_manifest_of, part, job_id, name)
        for file in manifest.files:
            to = part / file.path
            to.parent.mkdir(parents=True, exist_ok=True)
            size, digest = await api.get_file(job_id, name, file.path, to)
            if (size, digest) != (file.size, file.sha256):
                expected = f"{file.size} bytes with SHA-256 {file.sha256}"
                found = f"{size} bytes with SHA-256 {digest}"
                raise BadCheckpointError([Problem(file.path, expected, found)])
        await asyncio.to_thread(_as(owner, partial(vanish, folder / name)))
        if owner is not None:
            await asyncio.to_thread(hand_over, part, owner)
        part.rename(folder / name)
    finally:
        await asyncio.to_thread(shutil.rmtree, part, ignore_errors=True)


def _manifest_of(path: Path, job_id: str, name: str) -> Manifest:
    """Return the manifest in a folder, which must be that of this checkpoint.

    Raises:
        BadCheckpointError: it is damaged, or that of another one.
    """
    manifest = read_manifest(path)
    if (manifest.job_id, str(manifest.name)) != (job_id, name):
        expected = f"the manifest of job {job_id}, {name}"
        found = f"that of job {manifest.job_id}, {manifest.name}"
        raise BadCheckpointError([Problem(MANIFEST, expected, found)])
    return manifest


def _remove(path: Path) -> None:
    if path.is_symlink() or path.exists():
        remove_checkpoint(path)
    else:
        vanish(path)  # finishes a removal that was cut short


def remove_released(path: Path, *, guarded: bool = False) -> bool:
    """Remove a checkpoint that is not needed any more; True when it is gone.

    Only a folder that is named like a checkpoint and holds a manifest is touched.

    Args:
        guarded: jobs run as other users: links of theirs do not count.
    """
    if not path.is_absolute():
        logger.error("checkpoint_not_removed", path=path, error="not an absolute path")
        return False
    try:
        if guarded and path.parent.is_dir():
            with reached(path.parent) as folder:
                _remove(folder / path.name)
        elif path.parent.parent.is_dir():
            _remove(path)
        else:
            # A host without the storage cannot know that the checkpoint is gone.
            logger.warning("checkpoint_not_removed", path=path, error="no such storage")
            return False
    except NotRemovedError as error:
        logger.error("checkpoint_not_removed", path=path, error=error)
        return False
    except OSError as error:
        logger.warning("checkpoint_not_removed", path=path, error=error)
        return False
    return True
