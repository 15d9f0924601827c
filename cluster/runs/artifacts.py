"""Artifacts of runs: files among a run's outputs, below `mlflow/`, as those of jobs are."""

import os
from collections.abc import AsyncIterator
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access.roles import Action
from trainhall.cluster.errors import InvalidValueError, NotFoundError, TooLargeError
from trainhall.cluster.lifecycle.jobs import lock_job
from trainhall.cluster.outputs.changes import OutputChanges
from trainhall.cluster.outputs.limits import OutputLimits
from trainhall.cluster.outputs.store import OutputStore
from trainhall.cluster.runs.service import RunService
from trainhall.cluster.service import Service, ServiceContext
from trainhall.cluster.wire.output_names import OutputNameError, name_of, path_of
from trainhall.cluster.wire.outputs import MAX_ITEMS, File
from trainhall.db.documents import Allocation
from trainhall.db.models import Attempt
from trainhall.db.outputs import OutputFile
from trainhall.monitoring.lineage import RUN_ATTEMPT

FOLDER = "mlflow/"
_RANK = 0


class RunArtifacts(Service):
    def __init__(self, context: ServiceContext, runs: RunService, store: OutputStore) -> None:
        super().__init__(context)
        self._runs = runs
        self._store = store

    async def store(self, run_id: str, path: str, chunks: AsyncIterator[bytes]) -> None:
        """Store a file of a run; it appears as a whole.

        Raises:
            InvalidValueError: the path is none.
            TooLargeError: it is beyond a limit.
            ForbiddenError, NotFoundError, StorageFullError
        """
        name = output_name(path)
        await self._check(run_id, Action.LOG)
        limits = OutputLimits.of(self._options, {})
        sha256, size = await self._store.put_unknown(run_id, chunks, limits.file_bytes)
        now = self._clock.now()
        file = File(path=name, size=size, sha256=sha256, modified_at=now)
        # There is no host that has to be an attempt's.
        of_run = Attempt(job_id=run_id, number=RUN_ATTEMPT, allocation=Allocation())
        async with self._db.transaction() as session:
            if await lock_job(session, run_id) is None:
                raise NotFoundError("run", run_id)  # deleted meanwhile
            changes = OutputChanges(session, of_run, _RANK)
            refused = await changes.store([file], limits, now)
            unnamed = await changes.unnamed()
        await self._store.remove(run_id, unnamed)
        if refused:
            raise TooLargeError(limits.job_bytes, limits.describe(refused[0]))

    async def remove(self, run_id: str, path: str) -> None:
        """Remove a file, or all below a folder, if it is there.

        Raises:
            InvalidValueError: the path is none.
            ForbiddenError, NotFoundError
        """
        name = output_name(path)
        owner = await self._runs.limited_to(self._caller).check(run_id, Action.LOG)
        of_run = Attempt(job_id=run_id, number=RUN_ATTEMPT, allocation=Allocation())
        async with self._db.transaction() as session:
            await lock_job(session, run_id)
            names = [each for each, _ in await self._files(session, run_id)]
            gone = [each for each in names if each == name or each.startswith(f"{name}/")]
            changes = OutputChanges(session, of_run, _RANK)
            for start in range(0, len(gone), MAX_ITEMS):
                await changes.remove(gone[start : start + MAX_ITEMS])
            unnamed = await changes.unnamed()
            if gone:
                detail = f"{len(gone)} files: {name}"
                self._audit(session, "run.delete_artifact", run_id, project=owner.project,
                            detail=detail)  # fmt: skip
        await self._store.remove(run_id, unnamed)

    async def entries(self, run_id: str, path: str) -> list[dict[str, Any]]:
        """Return the files and folders in a folder, as MLflow lists them.

        Raises:
            InvalidValueError: the path is none.
            NotFoundError: there is no such run that the caller sees.
        """
        folder = f"{output_name(path)}/" if path else FOLDER
        await self._check(run_id, Action.READ)
        async with self._db.session() as session:
            files = await self._files(session, run_id)
        found: dict[str, dict[str, Any]] = {}
        for name, size in files:
            if not name.startswith(folder):
                continue
            first, slash, _ = name[len(folder) :].partition("/")
            shown = os.fsdecode(path_of(first))
            found[shown] = {"path": shown, "is_dir": bool(slash)}
            if not slash:
                found[shown]["file_size"] = size
        return [found[name] for name in sorted(found)]

    async def _files(self, session: AsyncSession, run_id: str) -> list[tuple[str, int]]:
        rows = await session.execute(
            select(OutputFile.path, OutputFile.size).where(
                OutputFile.job_id == run_id, OutputFile.path.startswith(FOLDER, autoescape=True)
            )
        )
        return [(path, size) for path, size in rows]

    async def _check(self, run_id: str, action: Action) -> None:
        await self._runs.limited_to(self._caller).check(run_id, action)


def output_name(path: str) -> str:
    """Return the name of an artifact among the outputs of its run.

    Raises:
        InvalidValueError: it leads out of its folder, or is too long.
    """
    try:
        name = FOLDER + name_of(os.fsencode(path))
        path_of(name)
    except (OutputNameError, UnicodeEncodeError) as error:
        raise InvalidValueError("path", path[:160], str(error)) from None
    return name
