"""Code of jobs for their readers: its files, its archive, and how that of two jobs differs."""

import asyncio
import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainhall.cluster.access.roles import Action
from trainhall.cluster.access.visibility import check_job
from trainhall.cluster.errors import NotFoundError
from trainhall.cluster.jobs.code_store import CodeStore
from trainhall.cluster.service import Service, ServiceContext, load
from trainhall.cluster.wire.code_archive import ArchiveEntry, list_entries, read_texts
from trainhall.db.models import Job
from trainhall.db.provenance import JobCommit
from trainhall.db.views import View
from trainhall.training.spec.source.git_code import git_code_of

MAX_FILE_BYTES = 256 * 1024
"""A longer file is compared by its hash alone."""
MAX_FILE_LINES = 5000
MAX_LINES = 20_000
"""Most lines of a comparison, of both jobs together: later files are compared by their hash."""
MAX_DIFF = 64 * 1024
"""Most characters of a file's diff."""
_AT_ONCE = 2
"""Readings at a time: each unpacks up to 256 MiB."""


class CodeFile(View):
    """File or symbolic link of a job's code."""

    path: str
    size: int
    """Bytes; 0 for a link."""
    sha256: str | None
    """Null for a link."""
    link: str | None
    """Target of a symbolic link."""
    is_executable: bool


class JobCode(View):
    """Files of the code that was uploaded for a job."""

    sha256: str | None
    """SHA-256 of the archive; null for a job without uploaded code."""
    commit: str | None
    """Commit of code in git, of which no files are listed; null until the first host has resolved
    it."""
    size: int
    """Bytes of all files."""
    items: list[CodeFile]


class FileDifference(View):
    """File that is not the same in the code of two jobs."""

    path: str
    change: Literal["added", "removed", "changed"]
    """Seen from the first job."""
    diff: str | None
    """Unified diff, at most 64 KiB; null for binary and large files, and beyond 20,000 lines."""


class CodeDifference(View):
    """Files that are not the same in the code of two jobs."""

    identical: bool | None
    """Null: not known. Code in git is compared by its commit alone."""
    items: list[FileDifference]
    commits: list[str | None]
    """Commits of the two jobs, for code in git; null where one is not known."""


@dataclass(frozen=True)
class _Archive:
    path: Path | None
    entries: dict[str, ArchiveEntry]


@dataclass(frozen=True)
class _Clone:
    url: str
    commit: str | None


class JobCodeService(Service):
    def __init__(self, context: ServiceContext, code: CodeStore) -> None:
        super().__init__(context)
        self._code = code
        self._readings = asyncio.Semaphore(_AT_ONCE)

    async def files(self, job_id: str) -> JobCode:
        """List the files of a job's code.

        Raises:
            ForbiddenError: the caller may not read the project's code.
            NotFoundError: there is no such job that they see, or its code is lost.
        """
        sha256, git = await self._source(job_id)
        async with self._readings:
            found = await asyncio.to_thread(self._read, sha256)
        items = [
            CodeFile(path=path, size=e.size, sha256=e.sha256, link=e.link,
                     is_executable=e.is_executable)
            for path, e in sorted(found.entries.items())
        ]  # fmt: skip
        size = sum(item.size for item in items)
        return JobCode(sha256=sha256, commit=git and git.commit, size=size, items=items)

    async def archive(self, job_id: str) -> Path:
        """Return the path of the archive.

        Raises:
            ForbiddenError, NotFoundError: as of `files`; or the job has no uploaded code.
        """
        sha256, _ = await self._source(job_id)
        if sha256 is None:
            raise NotFoundError("uploaded code of job", job_id)
        return await asyncio.to_thread(self._code.file, sha256)

    async def compare(self, job_id: str, other: str) -> CodeDifference:
        """Return the files that differ between the code of two jobs.

        Raises:
            ForbiddenError, NotFoundError: as of `files`, of either job.
        """
        sources = [await self._source(job_id), await self._source(other)]
        hashes = [sha256 for sha256, _ in sources]
        clones = [git for _, git in sources]
        if any(clones):
            is_same = clones[0] == clones[1] and clones[0] is not None and clones[0].commit
            commits = [git and git.commit for git in clones]
            return CodeDifference(identical=True if is_same else None, items=[], commits=commits)
        if hashes[0] == hashes[1]:
            return CodeDifference(identical=True, items=[], commits=[])
        async with self._readings:
            items = await asyncio.to_thread(self._compare, *hashes)
        return CodeDifference(identical=not items, items=items, commits=[])

    async def _source(self, job_id: str) -> tuple[str | None, _Clone | None]:
        """Return the SHA-256 of a job's upload, and what its hosts clone."""
        async with self._db.session() as session:
            await check_job(session, self._caller, job_id, Action.READ_FILES)
            job = await load(session, Job, job_id)
            code = git_code_of(job.spec)
            if code is None:
                return job.code, None
            row = await session.get(JobCommit, job_id)
            return None, _Clone(code.git, row.commit if row is not None else None)

    def _read(self, sha256: str | None) -> _Archive:
        if sha256 is None:
            return _Archive(None, {})
        path = self._code.file(sha256)
        return _Archive(path, {entry.path: entry for entry in list_entries(path)})

    def _compare(self, sha256: str | None, other: str | None) -> list[FileDifference]:
        one, two = self._read(sha256), self._read(other)
        paths = sorted(
            path
            for path in one.entries.keys() | two.entries.keys()
            if one.entries.get(path) != two.entries.get(path)
        )
        before, after = _texts(one, paths), _texts(two, paths)
        return list(_differences(one, two, paths, before, after))


def _texts(archive: _Archive, paths: list[str]) -> dict[str, str | None]:
    """Return the text of files; None for those that are not compared line by line."""
    wanted = {
        path
        for path in paths
        if path in archive.entries and archive.entries[path].size <= MAX_FILE_BYTES
    }
    if archive.path is None or not wanted:
        return {}
    return read_texts(archive.path, wanted)


def _differences(
    one: _Archive,
    two: _Archive,
    paths: list[str],
    before: dict[str, str | None],
    after: dict[str, str | None],
) -> Iterator[FileDifference]:
    left = MAX_LINES
    for path in paths:
        old = before.get(path) if path in one.entries else ""
        new = after.get(path) if path in two.entries else ""
        diff = None
        if old is not None and new is not None:
            one_lines, two_lines = old.splitlines(), new.splitlines()
            left -= len(one_lines) + len(two_lines)
            if left >= 0 and max(len(one_lines), len(two_lines)) <= MAX_FILE_LINES:
                names = (f"a/{path}", f"b/{path}")
                diff = "\n".join(difflib.unified_diff(one_lines, two_lines, *names, lineterm=""))
        change: Literal["added", "removed", "changed"] = (
            "added" if path not in one.entries else
            "removed" if path not in two.entries else "changed"
        )  # fmt: skip
        yield FileDifference(path=path, change=change, diff=diff and diff[:MAX_DIFF])
