"""Jobs as users see them: submit, read, pause, resume, cancel, delete."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from sqlalchemy import bindparam, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster import pagination
from trainhall.cluster.access.limits import check_limits, check_size, limits_for
from trainhall.cluster.access.ownership import hold_project, owned_spec
from trainhall.cluster.access.roles import DEFAULT_PROJECT, Action
from trainhall.cluster.access.visibility import check_job
from trainhall.cluster.errors import ConflictError, InvalidValueError, NotFoundError, TooManyError
from trainhall.cluster.jobs import views
from trainhall.cluster.jobs.annotations import Annotation, annotate_job
from trainhall.cluster.jobs.code_store import CodeStore
from trainhall.cluster.jobs.commands import RIGHTS, Command, check_allowed, give_command
from trainhall.cluster.jobs.deletion import delete_job
from trainhall.cluster.jobs.listing import pages
from trainhall.cluster.jobs.listing.groups import read_groups
from trainhall.cluster.jobs.listing.hints import hint_of
from trainhall.cluster.jobs.listing.keys import GroupKey
from trainhall.cluster.jobs.resizing import describe_workers, resize_active
from trainhall.cluster.jobs.source import packages
from trainhall.cluster.jobs.source.provenance import Provenance, read_provenance
from trainhall.cluster.jobs.source.reuse import reuse_lock
from trainhall.cluster.jobs.spec_changes import resized_spec
from trainhall.cluster.jobs.submission import add_job
from trainhall.cluster.ledger.keeper import divide_entries
from trainhall.cluster.lifecycle.creation import Creation, RequestKey
from trainhall.cluster.lifecycle.jobs import lock_job, record_reason
from trainhall.cluster.lifecycle.reasons import Reason, ReasonCode, job_label
from trainhall.cluster.lifecycle.states import ACTIVE_STATES, JobState
from trainhall.cluster.secrets.stored import check_secrets
from trainhall.cluster.service import Service, ServiceContext
from trainhall.db.documents import Allocation
from trainhall.db.models import Attempt, Event, Job, JobProgress
from trainhall.training.spec import JobSpec

_TRIES = 8
_RETRY_SECONDS = 60
"""After which a refused submission may be repeated: places in the queue become free slowly."""

# Built once: it is run for every view of a job.
_JOB = (
    select(Job, JobProgress)
    .join(JobProgress, JobProgress.job_id == Job.id)
    .where(Job.id == bindparam("job"))
)


class JobService(Service):
    def __init__(self, context: ServiceContext, code: CodeStore) -> None:
        super().__init__(context)
        self._code = code
        self._creation = Creation(context, Job)

    async def code_missing(self, spec: JobSpec) -> bool:
        """Return whether a submission would be refused until the spec's code is uploaded.

        Raises:
            SpecError: it names a folder.
        """
        return not await self._code.limited_to(self._caller).has(spec)

    async def submit(
        self, spec: JobSpec, request: RequestKey | None = None
    ) -> tuple[views.Job, bool]:
        """Queue a job; returns it and whether it is new: the same request gives the same job.

        Raises:
            ConflictError: the key was used with another body.
            ForbiddenError: the caller may not submit to its project.
            InvalidValueError: there is no such project.
            NotFoundError: there is no job that it reproduces.
            SpecError: it names code that was not uploaded, or secrets that are not set.
            TooManyError: as many of the user's jobs wait as may.
        """
        await self._code.limited_to(self._caller).check(spec)

        async def add(session: AsyncSession) -> str:
            owned = await owned_spec(session, self._caller, spec, self._clock)
            await hold_project(session, owned.project)
            check_limits(await limits_for(session, self._caller, owned.project), owned)
            await check_secrets(session, owned)
            await self._check_queue(session, owned.user)
            await self._code.keep(session, owned.uploaded_code, owned.project or DEFAULT_PROJECT)
            new, now, user = self._ids.new(), self._clock.now(), self._caller.named
            job = await add_job(session, new, owned, now=now, user=user)
            if owned.provenance is not None and owned.provenance.reproduces is not None:
                await reuse_lock(session, self._caller, job, owned.provenance.reproduces)
            self._audit(session, "job.submit", job.id, project=job.project)
            return job.id

        view, created = await self._creation.once(self._caller, request, add, self._view)
        if created:
            self._notifier.notify_job(view.id)
        return view, created

    async def _check_queue(self, session: AsyncSession, user: str | None) -> None:
        """Check that a user may queue another job.

        Raises:
            TooManyError: they have as many as they may.
        """
        most = self._options.queued_jobs_per_user
        queued = await session.scalar(
            select(func.count()).where(
                Job.state == JobState.QUEUED, Job.user.is_not_distinct_from(user)
            )
        )
        if (queued or 0) >= most:
            owner = f"{user} has" if user is not None else "jobs without a user:"
            raise TooManyError(
                f"{owner} {most} jobs in the queue, and no more may wait; submit more when some "
                "have started, or raise TRAINHALL_QUEUED_JOBS_PER_USER",
                _RETRY_SECONDS,
            )

    async def check(self, job_id: str) -> str:
        """Check that there is such a job that the caller sees; return its project.

        Raises:
            NotFoundError: there is none.
        """
        async with self._db.session() as session:
            return (await check_job(session, self._caller, job_id)).project

    async def get(self, job_id: str) -> views.Job:
        async with self._db.session() as session:
            return await self._view(session, job_id)

    async def list(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        states: Sequence[str] = (),
        search: str | None = None,
        query: str | None = None,
        sort: str | None = None,
        me: str | None = None,
    ) -> views.JobPage:
        """List jobs, the newest first.

        Args:
            states: keeps only jobs in one of these states; all if there are none.
            search: keeps only jobs whose name has it in it, in any case, or whose id begins so.
            query: keeps only jobs that match it (`listing.query`).
            sort: sort key (`listing.keys`), after `-` in descending order.
            me: the user that `user:me` stands for in the query.

        Raises:
            InvalidValueError: of a state, search, query or sort key that is not valid.
        """
        pagination.check_limit(limit)
        asked = pages.PageRequest(
            limit=limit,
            cursor=cursor,
            states=states,
            search=search,
            query=query,
            sort=sort,
            me=me,
            caller=self._caller,
        )
        now = self._clock.now()
        async with self._db.session() as session:
            rows, following = await pages.read_page(session, asked, now)
            items = await views.job_views(session, self._caller, rows, now)
            hint = None
            if query is not None and cursor is None and not rows:
                hint = await hint_of(session, self._caller, query, me)
        return views.JobPage(items=items, next_cursor=following, hint=hint)

    async def groups(
        self,
        by: GroupKey,
        *,
        states: Sequence[str] = (),
        search: str | None = None,
        query: str | None = None,
        me: str | None = None,
    ) -> Sequence[views.JobGroup]:
        """Count the jobs of a list by a field; a job counts for each of its tags.

        Args:
            states, search, query, me: as in `list`.

        Raises:
            InvalidValueError: of a state, search or query that is not valid.
        """
        asked = pages.PageRequest(
            limit=0, states=states, search=search, query=query, me=me, caller=self._caller
        )
        async with self._db.session() as session:
            found = await read_groups(session, asked, by, self._clock.now())
        return [views.JobGroup.of(group, query=group.term(by)) for group in found]

    async def events(
        self, job_id: str, *, after: int = 0, limit: int = 100, cursor: str | None = None
    ) -> views.EventPage:
        """List events above sequence `after`, oldest first; a cursor wins over it."""
        pagination.check_limit(limit)
        if cursor is not None:
            after = pagination.decode_number("events", cursor)
        if not 0 <= after < 2**63:
            raise InvalidValueError("after", after, "must be a sequence of this list, 0 or above")
        async with self._db.session() as session:
            await check_job(session, self._caller, job_id)
            rows = (
                await session.scalars(
                    select(Event)
                    .where(Event.job_id == job_id, Event.seq > after)
                    .order_by(Event.seq)
                    .limit(limit + 1)
                )
            ).all()
        items = [views.Event.of(event) for event in rows[:limit]]
        following = pagination.encode("events", items[-1].seq) if len(rows) > limit else None
        return views.EventPage(items=items, next_cursor=following)

    async def attempts(self, job_id: str) -> Sequence[views.Attempt]:
        """List attempts, oldest first."""
        async with self._db.session() as session:
            await check_job(session, self._caller, job_id)
            found = await session.scalars(
                select(Attempt).where(Attempt.job_id == job_id).order_by(Attempt.number)
            )
            rows = found.all()
            return [views.attempt_view(*pair) for pair in zip_longest(rows, rows[1:])]

    async def packages(self, job_id: str, attempt: int | None = None) -> packages.JobPackages:
        """Return the Python environment of an attempt, or of the newest that reported one."""
        async with self._db.session() as session:
            await check_job(session, self._caller, job_id)
            return await packages.read(session, job_id, attempt)

    async def provenance(self, job_id: str) -> Provenance:
        """Return the repository and the command that a job was submitted from."""
        async with self._db.session() as session:
            owner = await check_job(session, self._caller, job_id)
            with_diff = self._caller.may(Action.READ_FILES, owner.project)
            return await read_provenance(session, job_id, with_diff=with_diff)

    async def pause(self, job_id: str) -> views.Job:
        """Pause a job: a running one saves at an agreed step, a waiting one leaves the queue."""
        return await self._command(job_id, Command.PAUSE, {})

    async def resume(
        self,
        job_id: str,
        *,
        resources: dict[str, Any] | None = None,
        parallelism: dict[str, Any] | None = None,
    ) -> views.Job:
        """Resume a paused job at the end of the queue of its priority.

        Args:
            resources, parallelism: replace keys of the job's spec.

        Raises:
            WrongStateError: it is not paused.
            SpecError: the changed spec is not valid.
        """
        asked = {"resources": resources, "parallelism": parallelism}
        return await self._command(job_id, Command.RESUME, {k: v for k, v in asked.items() if v})

    async def cancel(self, job_id: str) -> views.Job:
        """Cancel a job at once; one with ranks stops without saving."""
        return await self._command(job_id, Command.CANCEL, {})

    async def resize(self, job_id: str, resources: dict[str, int]) -> views.Job:
        """Change a job's number of workers, or the range of it.

        A waiting or paused job starts with it. A running one changes as soon as devices are free,
        in place if it can, else from a checkpoint that it saves.

        Args:
            resources: `workers`, or `min_workers` and `max_workers`.

        Raises:
            InvalidValueError: there is nothing in it.
            SpecError: the job cannot have that number.
            WrongStateError: it is over, or about to be.
        """
        now = self._clock.now()
        async with self._db.transaction() as session:
            await lock_job(session, job_id)
            job, _ = await _load(session, job_id)
            self._caller.check(RIGHTS[Command.RESIZE], job, "job")
            if not resources:
                whole = "give workers, or min_workers and max_workers for an elastic job"
                raise InvalidValueError("workers", None, whole)
            state = JobState(job.state)
            check_allowed(job, Command.RESIZE)
            spec = resized_spec(job.spec, resources)
            check_size(await limits_for(session, self._caller, job.project), spec, job.spec)
            document = spec.model_dump(mode="json")
            if document == job.spec:
                return await self._view(session, job_id)
            change = f"{describe_workers(document)} instead of {describe_workers(job.spec)}"
            sizes = list(spec.possible_workers)
            if state in ACTIVE_STATES:
                reason = await resize_active(session, job, sizes, change, user=self._caller.named)
            else:
                job.world_size = spec.resources.workers
                reason = Reason.of(
                    ReasonCode.RESIZE_REQUESTED, change=change, user=self._caller.named
                )
            asked = {
                name: (job.spec["resources"].get(name), new) for name, new in resources.items()
            }
            self._audit(session, "job.resize", job_id, project=job.project, changes=asked)
            job.spec, job.sizes, job.asked_by = document, sizes, self._caller.named
            await session.flush()
            await record_reason(session, job_id, "note", reason, now, attempt=job.attempt or None)
            view = await self._view(session, job_id)
        self._notifier.notify_job(job_id)
        return view

    async def annotate(self, job_id: str, annotation: Annotation) -> views.Job:
        """Change a job's tags and notes in any state; archive it once it has ended.

        Raises:
            InvalidValueError: nothing is given, or the job would have too many tags.
            WrongStateError: it is to be archived and has not ended.
        """
        async with self._db.transaction() as session:
            await lock_job(session, job_id)
            job, _ = await _load(session, job_id)
            self._caller.check(Action.ANNOTATE, job, "job")
            written = (job.tags, job.notes, job.archived)
            await annotate_job(session, job, annotation, self._clock.now(), user=self._caller.named)
            now_written = (job.tags, job.notes, job.archived)
            if written != now_written:
                names = ("tags", "notes", "archived")
                changes = dict(zip(names, zip(written, now_written, strict=True), strict=True))
                self._audit(session, "job.change", job_id, project=job.project, changes=changes)
            view = await self._view(session, job_id)
        self._notifier.notify_viewers(job_id)
        return view

    async def delete(self, job_id: str) -> None:
        """Delete a job that has ended, for good; its metrics, logs and files go soon after.

        Raises:
            WrongStateError: it has not ended, or something still needs it.
        """
        async with self._db.session() as session:
            await check_job(session, self._caller, job_id, RIGHTS[Command.DELETE])
        await divide_entries(self._db, job_id, self._clock.now())
        async with self._db.transaction() as session:
            project = await delete_job(session, self._caller, job_id, self._clock.now())
            self._audit(session, "job.delete", job_id, project=project)
        self._notifier.notify_viewers(job_id)
        self._notifier.notify_all_nodes()

    async def _command(
        self, job_id: str, command: Command, asked: Mapping[str, dict[str, Any]]
    ) -> views.Job:
        for _ in range(_TRIES):
            try:
                view, allocation = await self._command_once(job_id, command, asked)
            except ConflictError:
                continue
            self._notifier.notify_job(job_id)
            self._notifier.notify_hosts(allocation)
            return view
        async with self._db.session() as session:
            job, _ = await _load(session, job_id)
        label = job_label(job_id, job.name)
        raise ConflictError(f"{label} changes too often to {command} it now; try again")

    async def _command_once(
        self, job_id: str, command: Command, asked: Mapping[str, dict[str, Any]]
    ) -> tuple[views.Job, Allocation]:
        """Return the job after the command, and the hosts of its newest attempt.

        Args:
            asked: keys to replace, by the part of the spec that they are in.

        Raises:
            ConflictError: the job changed between reading and writing; look again.
        """
        now = self._clock.now()
        async with self._db.transaction() as session:
            done = await give_command(
                session, job_id, command, now=now, caller=self._caller, asked=asked
            )
            if done.has_effect:
                given = {
                    f"{part}.{key}": (None, value)
                    for part, values in asked.items()
                    for key, value in values.items()
                }
                self._audit(
                    session, f"job.{command}", job_id, project=done.job.project,
                    changes={"state": (done.before, JobState(done.job.state)), **given},
                )  # fmt: skip
            return await self._view(session, job_id), done.hosts

    async def _view(self, session: AsyncSession, job_id: str) -> views.Job:
        row = await _load(session, job_id)
        self._caller.check(Action.READ, row[0], "job")
        (view,) = await views.job_views(session, self._caller, [row], self._clock.now())
        return view


async def _load(session: AsyncSession, job_id: str) -> tuple[Job, JobProgress]:
    row = (await session.execute(_JOB, {"job": job_id})).one_or_none()
    if row is None:
        raise NotFoundError("job", job_id)
    return row[0], row[1]
