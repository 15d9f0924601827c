"""Selecting a job's files for lists: of one host, below a folder, by words of their paths."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, String, case, exists, func, literal, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from trainhall.cluster import pagination
from trainhall.cluster.outputs.views import Output, OutputFolder, OutputPage, OutputTotals
from trainhall.db.outputs import OutputFile
from trainhall.db.queries.text import Position
from trainhall.db.sanitize import sanitize_text


@dataclass(frozen=True)
class OutputFilter:
    """Filter of a job's files."""

    rank: int | None = None
    """Lowest rank of the host that wrote them. None: all hosts, of a path that several have the
    file of the lowest rank."""
    folder: str = ""
    """Path of the folder below which they are, with or without a slash at its end."""
    find: str = ""
    """Words that are in their paths, in any order and case."""

    @property
    def prefix(self) -> str:
        """Beginning of their paths."""
        folder = sanitize_text(self.folder).rstrip("/")
        return f"{folder}/" if folder else ""


async def read_page(
    session: AsyncSession, job_id: str, wanted: OutputFilter, limit: int, cursor: str | None
) -> OutputPage:
    """Read a page of the files in all folders, ordered by path."""
    found = select_files(job_id, wanted).order_by(OutputFile.path).limit(limit + 1)
    if cursor is not None:
        found = found.where(OutputFile.path > pagination.decode("outputs", cursor, str)[0])
    rows = list(await session.scalars(found))
    following = pagination.encode("outputs", rows[limit - 1].path) if len(rows) > limit else None
    return OutputPage(
        items=[Output.of(row) for row in rows[:limit]],
        folders=[],
        totals=None,
        next_cursor=following,
    )


async def read_folder(
    session: AsyncSession, job_id: str, wanted: OutputFilter, limit: int, cursor: str | None
) -> OutputPage:
    """Read a page of what lies directly in the folder: first its folders, then its files."""
    rest = func.substr(OutputFile.path, len(wanted.prefix) + 1, type_=String())
    slash = Position(rest, literal("/"))
    entries = (
        select_files(job_id, wanted)
        .with_only_columns(
            case((slash == 0, 1), else_=0).label("is_file"),
            case((slash == 0, rest), else_=func.substr(rest, 1, slash)).label("name"),
            OutputFile.size,
        )
        .subquery()
    )
    order = (entries.c.is_file, entries.c.name)
    found = (
        select(*order, func.count(), func.sum(entries.c.size))
        .group_by(*order)
        .order_by(*order)
        .limit(limit + 1)
    )
    if cursor is not None:
        is_file, name = pagination.decode("output-folder", cursor, int, str)
        found = found.where(tuple_(*order) > tuple_(literal(is_file), literal(name)))
    rows = (await session.execute(found)).all()
    shown = rows[:limit]
    following = None
    if len(rows) > limit:
        following = pagination.encode("output-folder", shown[-1].is_file, shown[-1].name)
    paths = [wanted.prefix + name for is_file, name, *_ in shown if is_file]
    files = await session.scalars(
        select_files(job_id, wanted).where(OutputFile.path.in_(paths)).order_by(OutputFile.path)
    )
    return OutputPage(
        items=[Output.of(file) for file in files],
        folders=[
            OutputFolder(path=wanted.prefix + name, files=count, size=size)
            for is_file, name, count, size in shown
            if not is_file
        ],
        totals=None,
        next_cursor=following,
    )


async def read_totals(session: AsyncSession, job_id: str, wanted: OutputFilter) -> OutputTotals:
    """Count the files that are meant, and name all hosts of the job that have any."""
    counts = select_files(job_id, wanted).with_only_columns(
        func.count(), func.coalesce(func.sum(OutputFile.size), 0)
    )
    files, size = (await session.execute(counts)).one()
    ranks = select(OutputFile.rank).where(OutputFile.job_id == job_id).distinct()
    return OutputTotals(
        files=files, size=size, ranks=list(await session.scalars(ranks.order_by(OutputFile.rank)))
    )


def select_files(job_id: str, wanted: OutputFilter) -> Select[Any]:
    """Select the files that are meant, in no order."""
    found = select(OutputFile).where(OutputFile.job_id == job_id, *_conditions(wanted))
    if wanted.rank is not None:
        return found.where(OutputFile.rank == wanted.rank)
    other = aliased(OutputFile)
    is_hidden = exists().where(
        other.job_id == job_id, other.path == OutputFile.path, other.rank < OutputFile.rank
    )
    return found.where(~is_hidden)


def _conditions(wanted: OutputFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if prefix := wanted.prefix:
        # Not LIKE: SQLite ignores case there.
        conditions.append(func.substr(OutputFile.path, 1, len(prefix)) == prefix)
    path = func.lower(OutputFile.path)
    conditions += [
        # Both in the database, whose idea of lower case may be that of ASCII alone.
        Position(path, func.lower(word)) > 0
        for word in sanitize_text(wanted.find).split()
    ]
    return conditions
