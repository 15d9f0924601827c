"""Ships the files that a job's ranks write on this host, while they run and at their end.

Nothing is kept here beside the files: what the coordinator has says what is new. A file with the
size and the time of the stored one is taken as unchanged, as rsync does. So an agent that is killed
leaves nothing to repair, and the next one sends what is missing.
"""

import asyncio
import contextlib
import hashlib
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import BufferedReader
from pathlib import Path
from typing import TypeVar

from trainhall.cluster.agent.coordinator_link.http_api import OutputUploading, RefusedError
from trainhall.cluster.agent.os_support import accounts
from trainhall.cluster.agent.os_support.accounts import acting_as
from trainhall.cluster.agent.shipping.output_scan import (
    Found,
    Scan,
    SentCode,
    Stamp,
    read_code,
    scan,
)
from trainhall.cluster.waiting import end_tasks
from trainhall.cluster.wire.outputs import (
    MAX_ITEMS,
    MAX_TOGETHER_BYTES,
    SMALL_BYTES,
    Commit,
    Committed,
    Content,
    File,
    Skipped,
    Stored,
    Why,
)
from trainhall.training.event_log import EventLogger
from trainhall.training.link.folder import AttemptFolder, outputs_folder, working_folder
from trainhall.training.link.launch import Launch
from trainhall.training.link.regular_file import open_regular

logger = EventLogger(__name__)
T = TypeVar("T")

INTERVAL_SECONDS = 120.0
"""Between two collections while ranks run."""
SETTLED_SECONDS = 2.0
"""A file that was written to more recently is taken with the next collection, or at the end."""
TRIES = 3
"""Collections after the end of the ranks until a file that still changes is left out."""
BATCH_FILES = 500
BATCH_BYTES = 512 * 2**20
FILES_AT_ONCE = 4
HASHED_AT_ONCE = 2
"""Ranks want the processors, too."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MICROS = (datetime(9999, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
_CHANGED = {409, 422}
"""Statuses that say that what was sent is not what was announced, or is sent by another host."""
_TOO_LARGE = 413
PREPARED = "prepared"
"""Empty file in an attempt's folder: its time is that of the copy of the code."""


class FileChangedError(Exception):
    """A file is not what it was a moment ago."""


@dataclass(frozen=True)
class Known:
    """A file of this host that the coordinator has."""

    size: int
    modified_at: datetime
    sha256: str
    rank: int
    stamp: Stamp | None = None
    """None: another agent, or another attempt, has sent it."""

    def is_that_of(self, stamp: Stamp) -> bool:
        if self.stamp is not None:
            return self.stamp == stamp
        return (self.size, self.modified_at) == (stamp.size, time_of(stamp))


class OutputCollector:
    """The outputs of one attempt on this host.

    Args:
        code: the job's code as it was unpacked here; None: the job has none.
    """

    def __init__(
        self, folder: AttemptFolder, launch: Launch, api: OutputUploading, code: Path | None
    ) -> None:
        self._folder, self._launch, self._api, self._code = folder, launch, api, code
        self._rank = min((slot.rank for slot in launch.ranks), default=0)
        self._owner = accounts.owner_of(folder.path)
        self._root = working_folder(folder, launch)
        if self._root == outputs_folder(folder, launch):
            self._code = None  # it works in a folder of the host's own
        self._sent_code: SentCode | None = None
        self._stored: Stored | None = None
        self.known: dict[str, Known] = {}
        self._reported: set[tuple[str, Why]] = set()
        self._used = 0
        """Bytes that the coordinator has of the job."""
        self._refused: dict[str, Stamp] = {}
        """Files for which there was no space within the limit."""
        self._absent: set[str] = set()
        """Names that the last collection did not find."""
        self._due = time.monotonic() + INTERVAL_SECONDS
        self._soon = math.inf
        """When (monotonic) a file that somebody waits for has settled."""
        self._final_tries = 0
        self.is_done = False
        """The ranks have ended, and all that they left was sent."""

    def move(self, launch: Launch) -> None:
        """Continue in a later generation, in which the host may have other ranks."""
        if launch.ranks:
            self._rank = min(slot.rank for slot in launch.ranks)

    def is_due(self, ended: bool) -> bool:
        """Return whether a collection is to begin now."""
        return not self.is_done and (ended or time.monotonic() >= min(self._due, self._soon))

    def hurry(self) -> None:
        """Collect soon: a rank has written a file that somebody waits for."""
        self._soon = time.monotonic() + SETTLED_SECONDS * 1.1

    @property
    def sent_mark(self) -> Path:
        """Return the file that marks an attempt some of whose files the coordinator has."""
        return self._folder.path / "outputs-sent"

    async def collect(self, ended: bool) -> None:
        """Send what is new, and say what is gone.

        Raises:
            UnavailableError: try again.
        """
        began = time.monotonic()
        if self._soon <= began:
            self._soon = math.inf
        try:
            more = await self._collect(ended)
        except RefusedError as error:
            logger.warning("outputs_refused", path=self._root, error=error.detail)
            self.is_done, more = ended, False
        if ended and not more:
            self.is_done = True
        now = time.monotonic()
        # However many files there are, the host has other things to do.
        self._due = now + max(INTERVAL_SECONDS, 20 * (now - began))

    async def _collect(self, ended: bool) -> bool:
        """Return whether something is left for another try after the end."""
        found = await asyncio.to_thread(self._scan)
        if self._stored is None:
            if not found.files and not found.skipped and not self._may_have_sent():
                return False  # it wrote nothing: no request at all
            await self._learn()
        assert self._stored is not None
        limits = self._stored
        skipped = [*found.skipped]
        new: list[tuple[str, Found]] = []
        unsettled = False
        removed = self._removed(found, ended)
        used = self._used - sum(self.known[name].size for name in removed)
        for name, file in found.files.items():
            known = self.known.get(name)
            if known is not None and known.is_that_of(file.stamp):
                continue
            if self._refused.get(name) == file.stamp and not removed and not ended:
                continue
            grown = used + file.stamp.size - (known.size if known is not None else 0)
            if file.stamp.size > limits.max_file_bytes:
                skipped.append(Skipped(path=name, size=file.stamp.size, why="file_limit"))
            elif grown > limits.max_bytes:
                skipped.append(Skipped(path=name, size=file.stamp.size, why="job_limit"))
            elif not ended and _age(file.stamp) < SETTLED_SECONDS:
                unsettled = True
            else:
                new.append((name, file))
                used = grown
        changing = await self._send(new, removed, self._unreported(skipped))
        self._final_tries += ended
        if ended and changing and self._final_tries >= TRIES:
            left = [Skipped(path=n, size=f.stamp.size, why="changing") for n, f in changing]
            await self._commit([], [], self._unreported(left))
            return False
        return bool(changing) or unsettled

    def _scan(self) -> Scan:
        if self._code is not None and self._sent_code is None:
            # As this process: jobs of other users cannot see it.
            self._sent_code = read_code(self._code)
        with acting_as(self._owner):
            prepared = self._folder.path / PREPARED
            prepared_ns = prepared.lstat().st_mtime_ns if prepared.exists() else 0
            return scan(self._root, self._launch.spec.outputs, self._sent_code, prepared_ns)

    def _may_have_sent(self) -> bool:
        launch = self._launch
        with acting_as(self._owner):
            return launch.attempt > 1 or launch.generation > 1 or self.sent_mark.exists()

    async def _learn(self) -> None:
        job_id, attempt = self._launch.job_id, self._launch.attempt
        self._stored = await self._api.stored_outputs(job_id, attempt, self._rank)
        self._used = self._stored.used
        for file in self._stored.files:
            known = Known(file.size, file.modified_at, file.sha256, file.rank)
            self.known.setdefault(file.path, known)

    def _removed(self, found: Scan, ended: bool) -> list[str]:
        """Return the names that are gone: where ranks run, for two collections in a row, since one
        may come between the removal of a file and its replacement."""
        if not found.is_complete:
            return []
        skipped = {each.path for each in found.skipped}
        absent = {name for name in self.known if name not in found.files and name not in skipped}
        gone = absent if ended else absent & self._absent
        self._absent = absent
        return sorted(gone)

    def _unreported(self, skipped: list[Skipped]) -> list[Skipped]:
        return [each for each in skipped if (each.path, each.why) not in self._reported]

    async def _send(
        self, new: list[tuple[str, Found]], removed: list[str], skipped: list[Skipped]
    ) -> list[tuple[str, Found]]:
        """Send files in batches; return those that changed meanwhile."""
        changing: list[tuple[str, Found]] = []
        # What is gone frees space for what is new.
        for at in range(0, len(removed), BATCH_FILES):
            await self._commit([], removed[at : at + BATCH_FILES], [])
        for at in range(0, len(skipped), BATCH_FILES):
            await self._commit([], [], skipped[at : at + BATCH_FILES])
        for batch in _groups(new, lambda each: each[1].stamp.size, BATCH_FILES, BATCH_BYTES):
            changing += await self._send_batch(batch)
        return changing

    async def _send_batch(self, batch: list[tuple[str, Found]]) -> list[tuple[str, Found]]:
        files: dict[str, tuple[Found, Content]] = {}
        changing: dict[str, Found] = {}
        skipped = []
        hashed = await self._hash_all([file for _, file in batch])
        for (name, file), content in zip(batch, hashed, strict=True):
            match content:
                case Content():
                    files[name] = file, content
                case FileChangedError() | FileNotFoundError():
                    changing[name] = file
                case OSError():
                    skipped.append(Skipped(path=name, size=file.stamp.size, why="unreadable"))
        failed = await self._put_missing(files)
        for name, (file, content) in files.items():
            if failed.get(content.sha256) == _TOO_LARGE:
                skipped.append(Skipped(path=name, size=content.size, why="file_limit"))
            elif content.sha256 in failed:
                changing[name] = file
        named = {n: (f, c) for n, (f, c) in files.items() if c.sha256 not in failed}
        reply = await self._commit(
            [
                File(path=n, size=c.size, sha256=c.sha256, modified_at=time_of(f.stamp))
                for n, (f, c) in named.items()
            ],
            [],
            self._unreported(skipped),
        )
        refused = {each.path for each in reply.refused}
        for name, (file, content) in named.items():
            if content.sha256 in reply.missing:
                changing[name] = file
            elif name in refused:
                self._refused[name] = file.stamp
            else:
                before = self.known.get(name)
                self._used += content.size - (before.size if before is not None else 0)
                self.known[name] = Known(
                    content.size, time_of(file.stamp), content.sha256, self._rank, file.stamp
                )
        return list(changing.items())

    async def _put_missing(self, files: dict[str, tuple[Found, Content]]) -> dict[str, int]:
        """Send the contents that the coordinator lacks; return the hashes of those that it does not
        take, with the status that says why."""
        launch = self._launch
        by_hash = {content.sha256: (file, content) for file, content in files.values()}
        if not by_hash:
            return {}
        offsets = await self._api.received_outputs(
            launch.job_id, launch.attempt, [content for _, content in by_hash.values()]
        )
        turns = asyncio.Semaphore(FILES_AT_ONCE)
        failed: dict[str, int] = {}
        small: list[tuple[Found, Content]] = []
        large: list[tuple[Found, Content, int]] = []
        for (file, content), offset in zip(by_hash.values(), offsets, strict=True):
            if offset == 0 and content.size <= SMALL_BYTES:
                small.append((file, content))
            elif offset is not None:
                large.append((file, content, offset))

        async def put(file: Found, content: Content, offset: int) -> None:
            async with turns:
                try:
                    # Here: a task that is cancelled while a thread opens it would leave it open.
                    with self._open(file) as opened:
                        await self._api.put_output(
                            launch.job_id, launch.attempt, content, opened, offset
                        )
                except (FileChangedError, OSError):
                    failed[content.sha256] = min(_CHANGED)
                except RefusedError as error:
                    if error.status not in (*_CHANGED, _TOO_LARGE):
                        raise
                    failed[content.sha256] = error.status

        async def put_small(files: list[tuple[Found, Content]]) -> None:
            async with turns:
                failed.update(await self._put_small(files))

        together = _groups(small, lambda each: each[1].size, MAX_ITEMS, MAX_TOGETHER_BYTES)
        puts = [
            *(asyncio.ensure_future(put_small(files)) for files in together),
            *(asyncio.ensure_future(put(*each)) for each in large),
        ]
        try:
            await asyncio.gather(*puts)
        finally:
            await end_tasks(puts)
        return failed

    async def _commit(
        self, files: list[File], removed: list[str], skipped: list[Skipped]
    ) -> Committed:
        """Record changes; return what of them was not taken."""
        if not files and not removed and not skipped:
            return Committed(missing=[], refused=[])
        launch = self._launch
        # The coordinator says each once, too: another agent of this host does not know.
        changes = Commit(rank=self._rank, files=files, removed=removed, skipped=skipped)
        await asyncio.to_thread(self._mark_sent)
        reply = await self._api.commit_outputs(launch.job_id, launch.attempt, changes)
        for name in removed:
            self._used -= self.known.pop(name).size
        self._reported |= {(each.path, each.why) for each in [*skipped, *reply.refused]}
        return reply

    def _mark_sent(self) -> None:
        with contextlib.suppress(OSError), acting_as(self._owner):
            self.sent_mark.touch()

    def _open(self, file: Found) -> BufferedReader:
        with acting_as(self._owner):
            fd = open_regular(Path(os.fsdecode(file.path)))
        opened = open(fd, "rb")  # noqa: SIM115 - the caller closes it
        if Stamp.of(os.fstat(opened.fileno())) != file.stamp:
            opened.close()
            raise FileChangedError
        return opened

    async def _put_small(self, files: Sequence[tuple[Found, Content]]) -> dict[str, int]:
        """Send contents in one request; return those that were not taken as `_put_missing`."""
        launch = self._launch
        read = await asyncio.to_thread(lambda: [self._read(file) for file, _ in files])
        contents = [content for _, content in files]
        failed = {
            content.sha256: min(_CHANGED)
            for content, data in zip(contents, read, strict=True)
            if data is None
        }
        whole = [(c, data) for c, data in zip(contents, read, strict=True) if data is not None]
        if whole:
            statuses = await self._api.put_outputs(launch.job_id, launch.attempt, whole)
            for (content, _), status in zip(whole, statuses, strict=True):
                if status in (*_CHANGED, _TOO_LARGE):
                    failed[content.sha256] = status
        return failed

    def _read(self, file: Found) -> bytes | None:
        """Return the bytes of a file; None: it is not what it was."""
        try:
            with self._open(file) as opened:
                data = opened.read(file.stamp.size + 1)
        except (FileChangedError, OSError):
            return None
        return data if len(data) == file.stamp.size else None

    async def _hash_all(self, files: Sequence[Found]) -> list[Content | FileChangedError | OSError]:
        """Return the content of each file, or why it has none."""
        turns = asyncio.Semaphore(HASHED_AT_ONCE)

        async def hash_some(some: list[Found]) -> list[Content | FileChangedError | OSError]:
            async with turns:
                return await asyncio.to_thread(lambda: [self._hash(file) for file in some])

        groups = _groups(files, lambda file: file.stamp.size, MAX_ITEMS, MAX_TOGETHER_BYTES)
        return [each for some in await asyncio.gather(*map(hash_some, groups)) for each in some]

    def _hash(self, file: Found) -> Content | FileChangedError | OSError:
        try:
            with self._open(file) as opened:
                digest = hashlib.file_digest(opened, "sha256").hexdigest()
                if Stamp.of(os.fstat(opened.fileno())) != file.stamp:
                    raise FileChangedError
        except (FileChangedError, OSError) as error:
            return error
        return Content(sha256=digest, size=file.stamp.size)

    def unchanged(self) -> dict[str, list[Path]]:
        """Return the files here that the coordinator has, by the hash of their contents."""
        found: dict[str, list[Path]] = {}
        for name, file in self._scan().files.items():
            known = self.known.get(name)
            if known is not None and known.is_that_of(file.stamp):
                found.setdefault(known.sha256, []).append(Path(os.fsdecode(file.path)))
        return found


def time_of(stamp: Stamp) -> datetime:
    """Return a file's time in whole microseconds, as it is stored."""
    # Any job may give its files a time that no calendar has.
    micros = max(0, min(stamp.modified_ns // 1000, _LAST_MICROS))
    return _EPOCH + timedelta(microseconds=micros)


def _age(stamp: Stamp) -> float:
    return time.time() - max(stamp.modified_ns, stamp.changed_ns) / 1e9


def _groups(
    items: Iterable[T], size_of: Callable[[T], int], most: int, most_bytes: int
) -> Iterator[list[T]]:
    """Yield items in their order, in lists of so many items and bytes at most; a larger one is in a
    list of its own."""
    group: list[T] = []
    size = 0
    for item in items:
        if group and (len(group) == most or size + size_of(item) > most_bytes):
            yield group
            group, size = [], 0
        group.append(item)
        size += size_of(item)
    if group:
        yield group
