"""The files that jobs wrote, for their users."""

import asyncio
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path

from sqlalchemy import delete, select

from trainhall.cluster import pagination
from trainhall.cluster.access.roles import Action
from trainhall.cluster.access.visibility import check_job
from trainhall.cluster.errors import NotFoundError
from trainhall.cluster.outputs.listing import (
    OutputFilter,
    read_folder,
    read_page,
    read_totals,
    select_files,
)
from trainhall.cluster.outputs.store import OutputStore
from trainhall.cluster.outputs.uploads import OutputUploads
from trainhall.cluster.outputs.views import Output, OutputPage
from trainhall.cluster.service import Service, ServiceContext
from trainhall.cluster.wire.output_names import path_of
from trainhall.db.outputs import OutputFile


class OutputService(Service):
    def __init__(self, context: ServiceContext, store: OutputStore) -> None:
        super().__init__(context)
        self._store = store
        self.uploads = OutputUploads(context, store)

    async def list(self, job_id: str, rank: int | None = None) -> list[Output]:
        """List a job's files by path.

        Args:
            rank: lists the files of the host whose lowest rank this is. None: of all hosts, and
                where several have a file of one name that of the lowest rank.

        Raises:
            NotFoundError: there is no such job that the caller sees.
        """
        async with self._db.session() as session:
            await check_job(session, self._caller, job_id)
            found = select(OutputFile).where(OutputFile.job_id == job_id)
            if rank is not None:
                found = found.where(OutputFile.rank == rank)
            rows = await session.scalars(found.order_by(OutputFile.rank))
            files: dict[str, OutputFile] = {}
            for row in rows:
                files.setdefault(row.path, row)
            return [Output.of(files[path]) for path in sorted(files)]

    async def page(
        self,
        job_id: str,
        wanted: OutputFilter | None = None,
        *,
        is_nested: bool = True,
        limit: int = 1000,
        cursor: str | None = None,
    ) -> OutputPage:
        """Return a page of a job's files, the first one with the totals of all pages.

        Args:
            is_nested: lists files of folders in the folder too. False: only its own files, and its
                folders with their totals.

        Raises:
            NotFoundError: there is no such job that the caller sees.
            InvalidCursorError: the cursor was not handed out by this list.
            InvalidValueError: the limit is out of range.
        """
        pagination.check_limit(limit)
        wanted = wanted or OutputFilter()
        read = read_page if is_nested else read_folder
        async with self._db.session() as session:
            await check_job(session, self._caller, job_id)
            page = await read(session, job_id, wanted, limit, cursor)
            if cursor is None:
                page.totals = await read_totals(session, job_id, wanted)
        return page

    async def contents(
        self, job_id: str, rank: int | None = None
    ) -> Sequence[tuple[Output, bytes, Path]]:
        """Return what `list` returns with, of each file, its path in the job's folder and where its
        bytes lie, as of `find`.

        Raises:
            ForbiddenError: the caller may not read the files of the job.
            NotFoundError: there is no such job that the caller sees.
        """
        async with self._db.session() as session:
            await check_job(session, self._caller, job_id, Action.READ_FILES)
            rows = await session.scalars(select_files(job_id, OutputFilter(rank)))
            # In one order, whatever that of the database is.
            files = sorted(map(Output.of, rows), key=attrgetter("path"))
        # Those of a job lie in one folder; a file that is gone is missed when it is opened.
        return [(f, path_of(f.path), self._store.place(job_id, f.sha256)) for f in files]

    async def find(self, job_id: str, path: str, rank: int | None = None) -> tuple[Output, Path]:
        """Find one of a job's files; return it, and where its bytes lie. They never change there,
        and go when the job has replaced the file: open it at once.

        Raises:
            ForbiddenError: the caller may not read the files of the job.
            NotFoundError: there is no such job that the caller sees, or no such file.
        """
        async with self._db.session() as session:
            await check_job(session, self._caller, job_id, Action.READ_FILES)
            found = select(OutputFile).where(OutputFile.job_id == job_id, OutputFile.path == path)
            if rank is not None:
                found = found.where(OutputFile.rank == rank)
            row = await session.scalar(found.order_by(OutputFile.rank).limit(1))
        if row is None:
            raise NotFoundError("output", f"{path} of job {job_id}"[:200])
        return Output.of(row), await asyncio.to_thread(self._store.file, job_id, row.sha256)

    def content(self, job_id: str, sha256: str) -> Path:
        """Return where a content lies, for agents.

        Raises:
            NotFoundError: there is none.
        """
        return self._store.file(job_id, sha256)

    async def delete(self, job_id: str) -> None:
        """Delete the files of a job whose record goes: the caller has checked that it may.

        Raises:
            OSError: the disk does not let them go; it may be called again.
        """
        async with self._db.transaction() as session:
            await session.execute(delete(OutputFile).where(OutputFile.job_id == job_id))
        await self._store.remove_job(job_id)
