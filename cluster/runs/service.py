"""Runs that run elsewhere: begun, logged to, ended and read by their clients."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Row, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access.ownership import hold_project
from trainhall.cluster.access.principal import Owner
from trainhall.cluster.access.roles import Action
from trainhall.cluster.errors import ConflictError, InvalidValueError, NotFoundError
from trainhall.cluster.lifecycle.creation import Creation
from trainhall.cluster.lifecycle.jobs import create_run, lock_job, move_run, reason_columns
from trainhall.cluster.lifecycle.reasons import Reason, ReasonCode
from trainhall.cluster.lifecycle.states import JobKind, JobState
from trainhall.cluster.runs import groups, logged
from trainhall.cluster.runs.groups import DEFAULT_ID, Group
from trainhall.cluster.runs.search import Search, search
from trainhall.cluster.runs.states import STATES, milliseconds, status_of, time_of
from trainhall.cluster.service import Service, ServiceContext
from trainhall.cluster.wire.mlflow import NAME_TAG, Point, tables_of
from trainhall.db.models import DeletedJob, Job
from trainhall.db.sanitize import sanitize_text
from trainhall.db.tracking.runs import Run
from trainhall.monitoring.ingest import Ingest
from trainhall.monitoring.lineage import RUN_ATTEMPT
from trainhall.monitoring.metrics import read_last
from trainhall.monitoring.points import read_points
from trainhall.training.link.frames import encode_frame, encode_tables

MAX_NAMES = 1000
"""Parameters, and as many tags, of a run."""
MAX_CHARS = 1024 * 1024
"""Characters of all names and values of a run."""
MAX_POINTS = 1000
"""Points of one request, as in MLflow."""
_MAX_JOB_NAME = 128
_RECENT_POINTS, _RECENT_RUNS = 2000, 64


@dataclass(frozen=True)
class LoggedRun:
    """A run as its client reads it."""

    id: str
    name: str
    project: str
    group_id: str
    status: str
    """MLflow's."""
    start: int
    """Milliseconds since 1970, as is `end`."""
    end: int | None
    parameters: Mapping[str, str]
    tags: Mapping[str, str]
    is_archived: bool
    metrics: Sequence[Point]
    """Newest point of each."""


@dataclass(frozen=True)
class NewRun:
    """
    Args:
        group_id: id of its group.
        start: milliseconds since 1970; None: now.
        run_id: id that an imported run had; None: it gets one.
        project: None: its group's, or the caller's own.
    """

    group_id: str
    name: str
    start: int | None
    tags: Mapping[str, str]
    run_id: str | None = None
    project: str | None = None


class RunService(Service):
    def __init__(self, context: ServiceContext, ingest: Ingest) -> None:
        super().__init__(context)
        self._ingest = ingest
        self._creation = Creation(context, Job)
        self._recent = _RecentPoints()

    # -- groups ---------------------------------------------------------------------------------

    async def group(self, group_id: str) -> Group:
        """Return a group; raise as `get_group`."""
        async with self._db.session() as session:
            return await groups.get_group(session, self._caller, group_id)

    async def find_group(self, name: str, project: str | None) -> Group:
        """Return the group with a name; raise as `groups.find_group`."""
        async with self._db.session() as session:
            return await groups.find_group(session, self._caller, name, project, self._clock)

    async def groups(self) -> list[Group]:
        async with self._db.session() as session:
            return await groups.list_groups(session, self._caller)

    async def add_group(self, name: str, project: str | None) -> Group:
        """Add a group; raise as `groups.add_group`."""
        try:
            async with self._db.transaction() as session:
                made = await groups.add_group(session, self._caller, name, project, self._clock)
                self._audit(session, "run_group.create", name, project=made.project)
                return made
        except IntegrityError:  # another request was first
            raise ConflictError(f"there is an experiment {name!r} already") from None

    # -- the life of a run ----------------------------------------------------------------------

    async def create(self, new: NewRun) -> LoggedRun:
        """Begin a run. An import that is repeated gets the run that it made.

        Raises:
            ConflictError: another job or run has the id.
            ForbiddenError, InvalidValueError: as `submission_project`.
            NotFoundError: there is no such group.
        """

        async def add(session: AsyncSession) -> str:
            group = await groups.get_group(session, self._caller, new.group_id)
            given = group.project or new.project
            project = await groups.project_of(session, self._caller, given, self._clock)
            await hold_project(session, project)
            if new.run_id is not None and await self._is_there(session, new.run_id, project):
                return new.run_id
            job = await self._add(session, new, group, project)
            self._audit(session, "run.create", job.id, project=project, detail=job.name)
            return job.id

        async def view(session: AsyncSession, run_id: str) -> LoggedRun:
            (row,) = await _rows(session, [run_id])
            return _logged(row, [])

        run, _ = await self._creation.once(self._caller, None, add, view)
        return run

    async def _add(self, session: AsyncSession, new: NewRun, group: Group, project: str) -> Job:
        newest = await session.scalar(select(func.max(Job.number)))
        now = self._clock.now()
        start = now if new.start is None else min(time_of(new.start), now)
        is_import, user = new.run_id is not None, self._caller.named
        code = ReasonCode.RUN_IMPORTED if is_import else ReasonCode.RUN_LOGGED
        run_id = new.run_id or self._ids.new()
        self._recent.forget(run_id)  # an imported run may have been deleted before
        job = Job(
            id=run_id, number=(newest or 0) + 1, kind=JobKind.RUN.value,
            name=_one_line(new.name) or f"run {run_id[:8]}", user=self._caller.user or None,
            project=project, group=None if group.id == DEFAULT_ID else group.name, spec={},
            priority=0, world_size=0, attempt=0, generation=0, restarts=0, restarts_step=0,
            **reason_columns(Reason.of(code, user=user, status="RUNNING")), asked_by=user,
            created_at=start, queued_at=start, started_at=start,
        )  # fmt: skip
        await create_run(session, job, JobState.RUNNING, now=now)
        group_id = None if group.id == DEFAULT_ID else int(group.id)
        run = Run(
            job_id=run_id, group_id=group_id, status="RUNNING", parameters={}, tags={},
            imported=is_import,
        )  # fmt: skip
        _merge(job, run, {}, dict(new.tags))
        session.add(run)
        await session.flush()
        return job

    async def _is_there(self, session: AsyncSession, run_id: str, project: str) -> bool:
        job = await session.get(Job, run_id)
        if job is None:
            if await session.get(DeletedJob, run_id) is not None:
                # What is still to be deleted would take the metrics and files of a new one along.
                raise ConflictError(
                    f"the run {run_id} was deleted, and its metrics and files are being removed; "
                    "try again in a minute"
                )
            return False
        if job.kind != JobKind.RUN or job.project != project:
            raise ConflictError(f"the id {run_id} is taken by another job")
        return True

    async def update(
        self,
        run_id: str,
        *,
        status: str | None = None,
        end: int | None = None,
        name: str | None = None,
    ) -> LoggedRun:
        """Change the status, the end or the name of a run.

        Args:
            status: one of MLflow's.
            end: milliseconds since 1970; None: now, if the status is that of one that has ended.

        Raises:
            ForbiddenError, NotFoundError
        """
        async with self._db.transaction() as session:
            job, run = await self._locked(session, run_id)
            before, now = (job.state, job.name), self._clock.now()
            if name:
                job.name = _one_line(name) or job.name
            if status is not None and (status != status_of(job, run) or end is not None):
                run.status, state = status, STATES[status]
                ended = None if end is None else max(min(time_of(end), now), job.created_at)
                if state != job.state:
                    code = ReasonCode.RUN_IMPORTED if run.imported else ReasonCode.RUN_STATUS
                    reason = Reason.of(code, user=self._caller.named, status=status)
                    await move_run(
                        session, job, state, reason=reason, now=now, finished_at=ended,
                        is_reported=not run.imported,
                    )  # fmt: skip
                elif ended is not None and job.finished_at is not None:
                    job.finished_at = ended
            changes = {"state": (before[0], job.state), "name": (before[1], job.name)}
            if before != (job.state, job.name):
                self._audit(session, "run.update", run_id, project=job.project, changes=changes)
            await session.flush()
            (row,) = await _rows(session, [run_id])
        self._notifier.notify_viewers(run_id)
        return _logged(row, [])

    # -- what is logged -------------------------------------------------------------------------

    async def log(self, run_id: str, points: Sequence[Point]) -> None:
        """Store points, each once.

        Raises:
            InvalidValueError: there are too many.
            ForbiddenError, NotFoundError
        """
        if len(points) > MAX_POINTS:
            raise InvalidValueError("metrics", len(points), f"must be at most {MAX_POINTS}")
        await self.check(run_id, Action.LOG)
        new = self._recent.without_known(run_id, points)
        if not new:
            return
        body = encode_frame(1, encode_tables(list(tables_of(new, None))))
        await self._ingest.metrics(run_id, RUN_ATTEMPT, "", body)
        # Only now: a repetition that came meanwhile must not be answered before it is stored.
        self._recent.add(run_id, new)

    async def describe(
        self, run_id: str, parameters: Mapping[str, str], tags: Mapping[str, str | None]
    ) -> None:
        """Store parameters and tags; the newest value of a name counts.

        Args:
            tags: None: removes one. That of MLflow with the name changes the run's.

        Raises:
            InvalidValueError: the run would have too many.
            ForbiddenError, NotFoundError
        """
        if not parameters and not tags:
            await self.check(run_id, Action.LOG)
            return
        async with self._db.transaction() as session:
            job, run = await self._locked(session, run_id)
            _merge(job, run, parameters, tags)
            await session.flush()
        self._notifier.notify_viewers(run_id)

    # -- reading --------------------------------------------------------------------------------

    async def get(self, run_id: str) -> LoggedRun:
        """
        Raises:
            NotFoundError: there is no such run that the caller sees.
        """
        await self.check(run_id, Action.READ)
        found = await self.get_all([run_id])
        if not found:  # deleted just now
            raise NotFoundError("run", run_id)
        return found[0]

    async def get_all(self, run_ids: Sequence[str]) -> list[LoggedRun]:
        """Return those of the runs that the caller sees, in this order."""
        async with self._db.session() as session:
            rows = {row.Job.id: row for row in await _rows(session, run_ids)}
        found = [run_id for run_id in run_ids if run_id in rows]
        seen = [r for r in found if self._caller.may(Action.READ, rows[r].Job.project)]

        def read(connection: Connection) -> dict[str, list[Point]]:
            return {
                run_id: [
                    Point(name, last.step, round(1000 * last.time), last.value)
                    for name, last in read_last(connection, run_id).items()
                ]
                for run_id in seen
            }

        metrics = await self._db.read(read)
        return [_logged(rows[run_id], metrics[run_id]) for run_id in seen]

    async def search(self, asked: Search) -> tuple[list[LoggedRun], str | None]:
        """Return a page of runs that the caller sees, and the token of the next one.

        Raises:
            InvalidValueError: of a part that is not valid.
        """
        async with self._db.session() as session:
            found, following = await search(session, self._caller, asked)
        return await self.get_all(found), following

    async def history(self, run_id: str, name: str) -> list[Point]:
        """Return all points of a metric in the order in which they came, each once.

        Raises:
            NotFoundError: there is no such run that the caller sees.
        """
        await self.check(run_id, Action.READ)

        def read(connection: Connection) -> list[Point]:
            found = read_points(connection, run_id, RUN_ATTEMPT, [name]).get((name, False))
            if found is None:
                return []
            columns = (found.steps.tolist(), found.times.tolist(), found.values.tolist())
            points = (
                Point(name, step, round(1000 * time), value)
                for step, time, value in zip(*columns, strict=True)
            )
            return list({point.identity: point for point in points}.values())

        return await self._db.read(read)

    async def check(self, run_id: str, action: Action) -> Owner:
        """Return whose a run is.

        Raises:
            ForbiddenError: the caller may not do this.
            NotFoundError: there is no such run that they see.
        """
        async with self._db.session() as session:
            query = select(Job.id, Job.project, Job.user, Job.kind).where(Job.id == run_id)
            row = (await session.execute(query)).one_or_none()
        if row is None:
            raise NotFoundError("run", run_id)
        owner = Owner(row.id, row.project, row.user)
        self._caller.check(action, owner, "run")
        if row.kind != JobKind.RUN:
            raise _no_run(run_id)
        return owner

    async def _locked(self, session: AsyncSession, run_id: str) -> tuple[Job, Run]:
        await lock_job(session, run_id)
        job, run = await session.get(Job, run_id), await session.get(Run, run_id)
        if job is None:
            raise NotFoundError("run", run_id)
        self._caller.check(Action.LOG, job, "run")
        if run is None:
            raise _no_run(run_id)
        return job, run


class _RecentPoints:
    """Newest points of the runs that were logged to last: a client that got no answer sends the
    same again. Readers leave out what slipped through."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, OrderedDict[int, None]] = OrderedDict()

    def clear(self) -> None:
        self._runs.clear()

    def forget(self, run_id: str) -> None:
        self._runs.pop(run_id, None)

    def without_known(self, run_id: str, points: Sequence[Point]) -> list[Point]:
        known = self._runs.get(run_id) or OrderedDict()
        found = {hash(p.identity): p for p in points}
        return [point for key, point in found.items() if key not in known]

    def add(self, run_id: str, points: Sequence[Point]) -> None:
        known = self._runs.setdefault(run_id, OrderedDict())
        self._runs.move_to_end(run_id)
        known.update((hash(point.identity), None) for point in points)
        while len(known) > _RECENT_POINTS:
            known.popitem(last=False)
        while len(self._runs) > _RECENT_RUNS:
            self._runs.popitem(last=False)


async def _rows(session: AsyncSession, run_ids: Sequence[str]) -> Sequence[Row[Job, Run]]:
    found = select(Job, Run).join(Run, Run.job_id == Job.id).where(Job.id.in_(run_ids))
    return (await session.execute(found)).all()


def _logged(row: Row[Job, Run], metrics: Sequence[Point]) -> LoggedRun:
    job, run = row.Job, row.Run
    return LoggedRun(
        id=job.id,
        name=job.name,
        project=job.project,
        group_id=DEFAULT_ID if run.group_id is None else str(run.group_id),
        status=status_of(job, run),
        start=milliseconds(job.started_at or job.created_at),
        end=None if job.finished_at is None else milliseconds(job.finished_at),
        parameters=run.parameters,
        tags=run.tags,
        is_archived=job.archived,
        metrics=metrics,
    )


def _merge(
    job: Job, run: Run, parameters: Mapping[str, str], tags: Mapping[str, str | None]
) -> None:
    """Add to what a run has.

    Raises:
        InvalidValueError: it would be too much.
    """
    run.parameters = {**run.parameters, **{k: sanitize_text(v) for k, v in parameters.items()}}
    cleaned = {k: None if v is None else sanitize_text(v) for k, v in tags.items()}
    job.name = _one_line(cleaned.pop(NAME_TAG, None) or "") or job.name
    run.tags = {k: v for k, v in {**run.tags, **cleaned}.items() if v is not None}
    for what, values in (("params", run.parameters), ("tags", run.tags)):
        if len(values) > MAX_NAMES:
            raise InvalidValueError(what, len(values), f"a run has at most {MAX_NAMES}")
        if sum(len(name) + len(value) for name, value in values.items()) > MAX_CHARS:
            raise InvalidValueError(what, None, f"a run has at most {MAX_CHARS} characters of them")
    logged.join(job, {"parameters": dict(parameters), "tags": cleaned})


def _no_run(job_id: str) -> NotFoundError:
    return NotFoundError("run", f"{job_id} (it is a job, to which its own processes log)")


def _one_line(name: str) -> str:
    return sanitize_text(" ".join(name.split()), _MAX_JOB_NAME)
