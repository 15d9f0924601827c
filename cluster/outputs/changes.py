"""Changes of one host's files in one transaction: which rows are written, and which go."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.outputs.limits import MAX_FILES, OutputLimits
from trainhall.cluster.wire.outputs import File, Skipped, Why
from trainhall.db.models import Attempt
from trainhall.db.outputs import OutputFile
from trainhall.monitoring.store import upsert


class OutputChanges:
    """Changes of the files of a host whose lowest rank is `rank`.

    The row of a host that an earlier attempt had, and this one has not, goes with the first change
    of its name: only the hosts of one attempt can have different files of one name.
    """

    def __init__(self, session: AsyncSession, attempt: Attempt, rank: int) -> None:
        self._session = session
        self._job_id, self._attempt, self._rank = attempt.job_id, attempt.number, rank
        hosts = [host.ranks for host in attempt.allocation if host.ranks]
        self._present = {rank, *(min(slot.rank for slot in ranks) for ranks in hosts)}
        self._released: set[str] = set()
        self.shared: list[tuple[str, int, int]] = []
        """Names of which another host of the attempt has another file, with the lowest rank and
        another one."""

    async def store(
        self, files: Sequence[File], limits: OutputLimits, now: datetime
    ) -> list[Skipped]:
        """Write the rows of files; return those that are beyond a limit."""
        known = await self._known([file.path for file in files])
        count, used = await self._totals()
        refused, rows = [], []
        for file in files:
            others = known.get(file.path, {})
            mine = others.pop(self._rank, None)
            if mine is not None and mine.attempt > self._attempt:
                continue  # a later attempt of this job has written it since
            count, used = count + (mine is None), used + file.size - (mine.size if mine else 0)
            why = _why_not(file, limits, count, used)
            if why is not None:
                count, used = count - (mine is None), used - file.size + (mine.size if mine else 0)
                refused.append(Skipped(path=file.path, size=file.size, why=why))
                self._released.add(file.sha256)
                continue
            if mine is not None:
                self._released.add(mine.sha256)
            await self._drop([row for row in others.values() if self._is_stale(row)])
            differ = [q for q, row in others.items()
                      if q in self._present and row.sha256 != file.sha256]  # fmt: skip
            if differ:
                ranks = sorted({self._rank, *differ})
                self.shared.append((file.path, ranks[0], ranks[1]))
            rows.append({
                "job_id": self._job_id, "rank": self._rank, "path": file.path,
                "attempt": self._attempt, "size": file.size, "sha256": file.sha256,
                "modified_at": file.modified_at, "stored_at": now,
            })  # fmt: skip

        def write(connection: Connection) -> None:
            connection.execute(upsert(connection, OutputFile, ("job_id", "rank", "path")), rows)

        if rows:
            await (await self._session.connection()).run_sync(write)
        return refused

    async def remove(self, names: Sequence[str]) -> None:
        """Delete the rows of files that the host has no more."""
        for rows in (await self._known(names)).values():
            await self._drop([
                row for q, row in rows.items()
                if (q == self._rank and row.attempt <= self._attempt) or self._is_stale(row)
            ])  # fmt: skip

    async def unnamed(self) -> set[str]:
        """Return the hashes of contents that no row names any more."""
        if not self._released:
            return set()
        named = await self._session.scalars(
            select(OutputFile.sha256).where(
                OutputFile.job_id == self._job_id, OutputFile.sha256.in_(self._released)
            )
        )
        return self._released - set(named)

    def _is_stale(self, row: OutputFile) -> bool:
        return row.rank not in self._present and row.attempt < self._attempt

    async def _known(self, names: Sequence[str]) -> dict[str, dict[int, OutputFile]]:
        """Return the rows with these names, by name and rank."""
        found: dict[str, dict[int, OutputFile]] = {}
        rows = await self._session.scalars(
            select(OutputFile).where(
                OutputFile.job_id == self._job_id, OutputFile.path.in_(set(names))
            )
        )
        for row in rows:
            found.setdefault(row.path, {})[row.rank] = row
        return found

    async def _totals(self) -> tuple[int, int]:
        totals = select(func.count(), func.coalesce(func.sum(OutputFile.size), 0)).where(
            OutputFile.job_id == self._job_id
        )
        count, used = (await self._session.execute(totals)).one()
        return int(count), int(used)

    async def _drop(self, rows: Sequence[OutputFile]) -> None:
        for row in rows:
            self._released.add(row.sha256)
            await self._session.execute(
                delete(OutputFile).where(
                    OutputFile.job_id == row.job_id,
                    OutputFile.rank == row.rank,
                    OutputFile.path == row.path,
                )
            )


def _why_not(file: File, limits: OutputLimits, count: int, used: int) -> Why | None:
    if file.size > limits.file_bytes:
        return "file_limit"
    if used > limits.job_bytes:
        return "job_limit"
    return "files_limit" if count > MAX_FILES else None
