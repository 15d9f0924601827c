"""Jobs as users see them: submit, read, pause, resume, cancel."""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster import cursors
from trainhall.cluster.code import CodeStore
from trainhall.cluster.elastic import sizes_of
from trainhall.cluster.errors import Conflict, InvalidValue, NotFound, WrongState
from trainhall.cluster.job_warnings import job_warnings
from trainhall.cluster.lifecycle import (
    ACTIVE_STATES,
    FINAL_STATES,
    JobState,
    create_job,
    lock_job,
    move_job,
    tell_attempt,
)
from trainhall.cluster.ports import Clock, Ids
from trainhall.cluster.present import attempt_view, event_view, job_view
from trainhall.cluster.respec import changed_spec, columns_of, resized_spec
from trainhall.cluster.run_time import run_times
from trainhall.cluster.stragglers import stragglers
from trainhall.cluster.views import AttemptView, EventView, JobView, Page
from trainhall.cluster.wakeups import Wakeups
from trainhall.db.database import Database
from trainhall.db.events import record_event
from trainhall.db.models import Attempt, Event, IdempotencyKey, Job, JobProgress
from trainhall.training.spec import JobSpec

_TRIES = 8

# What each command does from each state; a state that is not listed refuses it. A command that is
# repeated where it already led (None) is harmless: a client whose reply was lost asks again.
_PAUSE: dict[JobState, JobState | None] = {
    JobState.QUEUED: JobState.PAUSED,
    JobState.RECOVERING: JobState.PAUSED,
    JobState.STARTING: JobState.PAUSING,
    JobState.RUNNING: JobState.PAUSING,
    JobState.PAUSING: None,
    JobState.PAUSED: None,
}
_RESUME: dict[JobState, JobState | None] = {JobState.PAUSED: JobState.QUEUED}
_CANCEL: dict[JobState, JobState | None] = {
    JobState.QUEUED: JobState.CANCELLED,
    JobState.RECOVERING: JobState.CANCELLED,
    JobState.PAUSED: JobState.CANCELLED,
    JobState.STARTING: JobState.CANCELLING,
    JobState.RUNNING: JobState.CANCELLING,
    JobState.PAUSING: JobState.CANCELLING,
    JobState.CANCELLING: None,
    JobState.CANCELLED: None,
}
_NOTHING: Mapping[str, dict[str, Any]] = {}
COMMANDS = {"pause": _PAUSE, "resume": _RESUME, "cancel": _CANCEL}
_DONE = {"pause": "paused", "resume": "resumed", "cancel": "cancelled"}
_REASONS = {
    JobState.PAUSED: "a user paused it before it ran",
    JobState.PAUSING: "a user asked to pause it",
    JobState.QUEUED: "a user resumed it",
    JobState.CANCELLED: "a user cancelled it",
    JobState.CANCELLING: "a user asked to cancel it",
}


class JobService:
    def __init__(
        self, db: Database, clock: Clock, ids: Ids, wakeups: Wakeups, code: CodeStore
    ) -> None:
        self._db = db
        self._code = code
        self._clock = clock
        self._ids = ids
        self._wakeups = wakeups
        self._submitting = asyncio.Lock()

    async def lacks_code(self, spec: JobSpec) -> bool:
        """Whether a submission would be refused until the code is uploaded that the spec names.

        Raises:
            SpecError: it names a folder.
        """
        return not await self._code.has(spec)

    async def submit(
        self, spec: JobSpec, idempotency: tuple[str, str] | None = None
    ) -> tuple[JobView, bool]:
        """Queue a job; returns it and whether it is new.

        `idempotency` is a key of the caller and the SHA-256 of what was sent under it: the same key
        gives the same job, however often and from however many callers at once.

        Raises:
            Conflict: the key was used with another body.
            SpecError: it names code that was not uploaded.
        """
        await self._code.check(spec)
        if idempotency is not None and not 1 <= len(idempotency[0]) <= 255:
            raise InvalidValue("Idempotency-Key", idempotency[0], "must have 1 to 255 characters")
        # One after the other here; a second coordinator on the same database loses the race for
        # the number or the key on its unique index and tries again.
        async with self._submitting:
            for attempt in range(_TRIES):
                try:
                    view, created = await self._submit_once(spec, idempotency)
                    break
                except IntegrityError:
                    if attempt == _TRIES - 1:
                        raise
        if created:
            self._wakeups.job(view.id)
        return view, created

    async def _submit_once(
        self, spec: JobSpec, idempotency: tuple[str, str] | None
    ) -> tuple[JobView, bool]:
        now = self._clock.now()
        async with self._db.transaction() as session:
            if idempotency is not None:
                key, digest = idempotency
                known = await session.get(IdempotencyKey, key)
                if known is not None:
                    if known.body_sha256 != digest:
                        raise Conflict(
                            f"Idempotency-Key {key!r} was used for another body (job "
                            f"{known.job_id}); use a new key for a new job"
                        )
                    return await _view(session, known.job_id), False
            newest = await session.scalar(select(func.max(Job.number)))
            job = Job(
                id=self._ids.new(),
                number=(newest or 0) + 1,
                name=spec.name,
                code=spec.code,
                spec=spec.model_dump(mode="json"),
                priority=spec.priority,
                reason="submitted",
                attempt=0,
                generation=0,
                restarts=0,
                restarts_step=0,
                world_size=spec.resources.workers,
                sizes=sizes_of(spec),
            )
            await create_job(session, job, now=now)
            if idempotency is not None:
                session.add(
                    IdempotencyKey(
                        key=idempotency[0],
                        body_sha256=idempotency[1],
                        job_id=job.id,
                        created_at=now,
                    )
                )
                await session.flush()
            return await _view(session, job.id), True

    async def get(self, job_id: str) -> JobView:
        async with self._db.session() as session:
            return await _view(session, job_id)

    async def list(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        states: Sequence[str] = (),
        search: str | None = None,
    ) -> Page[JobView]:
        """The newest first.

        Args:
            states: keeps only jobs in one of these states; all if there are none.
            search: keeps only jobs whose name has it in it, in any case, or whose id begins so.
        """
        cursors.check_limit(limit)
        for state in states:
            if state not in set(JobState):
                known = ", ".join(JobState)
                raise InvalidValue("state", state, f"{state!r} is no state; known are {known}")
        query = (
            select(Job, JobProgress)
            .join(JobProgress, JobProgress.job_id == Job.id)
            .order_by(Job.number.desc())
            .limit(limit + 1)
        )
        if states:
            query = query.where(Job.state.in_(states))
        if search is not None:
            if not search.isprintable():
                raise InvalidValue("search", search, "must be text without control characters")
            named = Job.name.icontains(search, autoescape=True)
            query = query.where(named | Job.id.startswith(search.lower(), autoescape=True))
        if cursor is not None:
            query = query.where(Job.number < cursors.decode_number("jobs", cursor))
        async with self._db.session() as session:
            rows = (await session.execute(query)).all()
            ran = await run_times(session, [job.id for job, _ in rows])
            slow = await stragglers(session, [(job, progress) for job, progress in rows[:limit]])
            warned = await job_warnings(session, [job for job, _ in rows[:limit]])
        more = len(rows) > limit
        return Page(
            [
                job_view(*row, ran[row[0].id], slow.get(row[0].id), warned.get(row[0].id, ()))
                for row in rows[:limit]
            ],
            cursors.encode("jobs", rows[limit - 1][0].number) if more else None,
        )

    async def events(self, job_id: str, *, after: int = 0, limit: int = 100) -> Page[EventView]:
        """Events above sequence `after`, oldest first; the next cursor is the last sequence."""
        cursors.check_limit(limit)
        if not 0 <= after < 2**63:
            raise InvalidValue("after", after, "must be a sequence of this list, 0 or above")
        async with self._db.session() as session:
            await _load(session, job_id)
            rows = (
                await session.scalars(
                    select(Event)
                    .where(Event.job_id == job_id, Event.seq > after)
                    .order_by(Event.seq)
                    .limit(limit + 1)
                )
            ).all()
        items = [event_view(event) for event in rows[:limit]]
        return Page(items, str(items[-1].seq) if len(rows) > limit else None)

    async def attempts(self, job_id: str) -> Sequence[AttemptView]:
        """Oldest first."""
        async with self._db.session() as session:
            await _load(session, job_id)
            found = await session.scalars(
                select(Attempt).where(Attempt.job_id == job_id).order_by(Attempt.number)
            )
            rows = found.all()
            return [attempt_view(*pair) for pair in zip_longest(rows, rows[1:])]

    async def pause(self, job_id: str) -> JobView:
        """A running job stops at an agreed step and saves; a waiting one leaves the queue."""
        return await self._command(job_id, "pause")

    async def resume(
        self,
        job_id: str,
        *,
        resources: dict[str, Any] | None = None,
        parallelism: dict[str, Any] | None = None,
    ) -> JobView:
        """A paused job goes to the end of the queue of its priority.

        Args:
            resources, parallelism: replace keys of the job's spec.

        Raises:
            WrongState: it is not paused.
            SpecError: the changed spec is not valid.
        """
        asked = {"resources": resources, "parallelism": parallelism}
        return await self._command(job_id, "resume", {k: v for k, v in asked.items() if v})

    async def cancel(self, job_id: str) -> JobView:
        """A job with ranks stops now, saving nothing; any other is cancelled at once."""
        return await self._command(job_id, "cancel")

    async def resize(self, job_id: str, resources: dict[str, int]) -> JobView:
        """Have a job ask for another number of workers, or for a range of them.

        One that waits or is paused starts with it; one that runs goes on with it as soon as there
        is room, in place if it can, else from a checkpoint that it saves.

        Args:
            resources: `workers`, or `min_workers` and `max_workers`.

        Raises:
            InvalidValue: there is nothing in it.
            SpecError: the job cannot have that number.
            WrongState: it is over, or about to be.
        """
        now = self._clock.now()
        async with self._db.transaction() as session:
            await lock_job(session, job_id)
            job, _ = await _load(session, job_id)
            if not resources:
                whole = "give workers, or min_workers and max_workers for an elastic job"
                raise InvalidValue("workers", None, whole)
            state = JobState(job.state)
            if state in FINAL_STATES or state is JobState.CANCELLING:
                raise WrongState(
                    f"job {job_id} cannot be resized: it is {state.value}; restore one of its "
                    "checkpoints with other resources instead",
                    state,
                )
            spec = resized_spec(job.spec, resources)
            document = spec.model_dump(mode="json")
            if document == job.spec:
                return await _view(session, job_id)
            told = f"a user asks for {_workers(document)} instead of {_workers(job.spec)}"
            sizes = list(spec.possible_workers)
            if state in ACTIVE_STATES:
                attempt = await session.get(Attempt, (job_id, job.attempt), with_for_update=True)
                assert attempt is not None
                attempt.spec = attempt.spec or job.spec
                if state is not JobState.PAUSING:
                    if job.world_size in sizes:
                        told += f"; it goes on with {job.world_size}"
                    else:
                        told += f"; it keeps {job.world_size} until it can change"
                    job.reason = told
            else:
                job.world_size = spec.resources.workers
            job.spec, job.sizes = document, sizes
            await session.flush()
            await record_event(
                session, job_id, time=now, kind="note", reason=told, attempt=job.attempt or None
            )
            view = await _view(session, job_id)
        self._wakeups.job(job_id)
        return view

    async def _command(
        self, job_id: str, command: str, asked: Mapping[str, dict[str, Any]] = _NOTHING
    ) -> JobView:
        for _ in range(_TRIES):
            try:
                view, allocation = await self._command_once(job_id, command, asked)
            except _Moved:
                continue
            self._wakeups.job(job_id)
            self._wakeups.hosts(allocation)
            return view
        raise Conflict(f"job {job_id} changes too quickly to {command} it; try again")

    async def _command_once(
        self, job_id: str, command: str, asked: Mapping[str, dict[str, Any]]
    ) -> tuple[JobView, Sequence[dict[str, Any]]]:
        """The job after the command, and the hosts of its newest attempt.

        Args:
            asked: keys to replace, by the part of the spec that they are in.

        Raises:
            _Moved: the job changed between reading and writing; look again.
        """
        now = self._clock.now()
        async with self._db.transaction() as session:
            await lock_job(session, job_id)
            job, progress = await _load(session, job_id)
            state = JobState(job.state)
            table = COMMANDS[command]
            if state not in table:
                raise WrongState(_refusal(job_id, state, command), state)
            end = table[state]
            if end is None:
                return await _view(session, job_id), []
            reason = _REASONS[end]
            if end is JobState.PAUSED and job.attempt > 0:
                reason = "a user paused it while it waited"
            attempt = await session.get(Attempt, (job_id, job.attempt))
            if end in (JobState.PAUSING, JobState.CANCELLING) and (
                attempt is None
                or not await tell_attempt(
                    session,
                    (job_id, attempt.number, attempt.generation),
                    "pause" if end is JobState.PAUSING else "stop",
                    reason=reason,
                    now=now,
                )
            ):
                raise _Moved
            changes: dict[str, Any] = {}
            if command == "resume":
                changes = {"restarts": 0, "restarts_step": progress.step}
            if asked:
                spec = changed_spec(job.spec, asked.get("resources"), asked.get("parallelism"))
                changes |= columns_of(spec)
                reason += f" with {_in_words(asked)}"
            if not await move_job(
                session, job_id, state, end,
                reason=reason, now=now, attempt=job.attempt, changes=changes,
            ):  # fmt: skip
                raise _Moved
            await session.refresh(job)
            await session.refresh(progress)
            view = await _view(session, job_id)
            return view, attempt.allocation if attempt is not None else []


class _Moved(Exception):
    """The job was changed by somebody else meanwhile; nothing was written."""


def _refusal(job_id: str, state: JobState, command: str) -> str:
    if state in FINAL_STATES:
        told = f"job {job_id} cannot be {_DONE[command]}: it is {state.value}, which is final"
        if command == "resume":
            told += "; `trainhall ckpt restore` takes it up from one of its checkpoints"
        return told
    *others, last = (s for s, end in COMMANDS[command].items() if end is not None)
    allowed = f"{', '.join(others)} or {last}" if others else last
    return f"job {job_id} cannot be {_DONE[command]}: it is {state.value}; only a {allowed} job can"


def _in_words(asked: Mapping[str, dict[str, Any]]) -> str:
    return ", ".join(
        f"{part}.{key} {value}" for part, values in asked.items() for key, value in values.items()
    )


def _workers(spec: dict[str, Any]) -> str:
    resources = spec["resources"]
    if "max_workers" in resources:
        return f"{resources['min_workers']} to {resources['max_workers']} workers"
    return f"{resources['workers']} worker{'s' if resources['workers'] != 1 else ''}"


async def _view(session: AsyncSession, job_id: str) -> JobView:
    ran = await run_times(session, [job_id])
    row = await _load(session, job_id)
    slow = await stragglers(session, [row])
    warned = await job_warnings(session, [row[0]])
    return job_view(*row, ran[job_id], slow.get(job_id), warned.get(job_id, ()))


async def _load(session: AsyncSession, job_id: str) -> tuple[Job, JobProgress]:
    row = (
        await session.execute(
            select(Job, JobProgress)
            .join(JobProgress, JobProgress.job_id == Job.id)
            .where(Job.id == job_id)
        )
    ).one_or_none()
    if row is None:
        raise NotFound("job", job_id)
    return row[0], row[1]
