"""The queue for users: who waits for what, until when, and when a new job would start."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select

from trainhall.cluster import pagination
from trainhall.cluster.access.limits import check_limits, limits_for
from trainhall.cluster.access.ownership import owned_spec
from trainhall.cluster.access.roles import DEFAULT_PROJECT, Action
from trainhall.cluster.access.visibility import ANYBODY, OwnerFilter
from trainhall.cluster.errors import InvalidCursorError
from trainhall.cluster.jobs.spec_changes import sizes_of
from trainhall.cluster.lifecycle.reasons import FOREIGN_JOB
from trainhall.cluster.lifecycle.states import JobState, NodeState
from trainhall.cluster.nodes.heartbeats import HeartbeatMonitor
from trainhall.cluster.queue.durations import Durations, load_durations
from trainhall.cluster.queue.history import QueueHistoryService
from trainhall.cluster.queue.order import queue_order
from trainhall.cluster.scheduling import views
from trainhall.cluster.scheduling.forecast import foresee, foresee_new
from trainhall.cluster.scheduling.scheduler import QueueEntry, shortage
from trainhall.cluster.secrets.stored import check_secrets
from trainhall.cluster.service import Service, ServiceContext
from trainhall.cluster.snapshot.load import load_facts
from trainhall.cluster.snapshot.model import ClusterFacts, JobFacts
from trainhall.db.models import Node
from trainhall.training.spec import JobSpec

_JUST_STARTED_SECONDS = 10.0
"""Time that a coordinator must have listened before it reports on nodes without a heartbeat."""
_ASK_SECONDS = 0.05
_DURATIONS_SECONDS = 60.0
"""Time for which durations of completed jobs are kept."""


@dataclass(frozen=True)
class Forecast:
    """Forecast of a job that is not submitted."""

    outlook: views.Outlook
    shortage: str | None
    """Why the cluster as it is could not hold the job, were it the only one."""


class _Recent:
    """Durations of jobs that have ended, as they were loaded last."""

    durations: Durations | None = None
    at = 0.0
    """When, in seconds of the monotonic clock."""


class QueueService(Service):
    def __init__(
        self,
        context: ServiceContext,
        heartbeats: HeartbeatMonitor,
        history: QueueHistoryService,
    ) -> None:
        super().__init__(context)
        self._heartbeats = heartbeats
        self._history = history
        self._recent = _Recent()

    async def list(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        job_id: str | None = None,
        history: bool = False,
        history_since: datetime | None = None,
        of: OwnerFilter = ANYBODY,
    ) -> views.QueuePage:
        """List the jobs that wait, in the order in which they will be started, each with its
        reason; jobs of projects that the caller may not see without who and why.

        A cursor stands between two positions of that order: a job that starts between two pages
        moves no other from one page to the next.

        Args:
            job_id: only this job, if it waits.
            history: with the positions of each job over time.
            history_since: only with those that have begun or ended since then.
            of: whose jobs; of the jobs of one user or project those that the caller sees.
        """
        pagination.check_limit(limit)
        behind = None if cursor is None else _position_of(cursor)
        async with self._db.session() as session:
            facts = await load_facts(session, self._heartbeats)
        entries = foresee(self._clock.now(), facts, self._options, await self._durations_now())
        if of != ANYBODY:
            entries = [
                e
                for e in entries
                if self._may_read(e.job) and of.matches(e.job.user, e.job.project)
            ]
        total = len(entries)
        if job_id is not None:
            entries = [e for e in entries if e.job.id == job_id and self._may_read(e.job)]
        if behind is not None:
            entries = [e for e in entries if queue_order(e.job, self._options) > behind]
        shown = entries[:limit]
        following = self._cursor_behind(shown[-1].job) if len(entries) > limit else None
        items = [
            _view(entry) if self._may_read(entry.job) else _anonymous(entry) for entry in shown
        ]
        if history:
            ids = [item.job_id for item in items if item.job_id is not None]
            found = await self._history.of_jobs(ids, history_since)
            for item in items:
                item.history = found.get(item.job_id, []) if item.job_id is not None else None
        return views.QueuePage(items=items, next_cursor=following, total=total)

    async def forecast(self, spec: JobSpec) -> Forecast:
        """Forecast the start of a job that would be submitted now.

        Raises:
            ForbiddenError: the caller may not submit to its project.
            InvalidValueError: there is no such project, none is given and there are several, or the
                job is beyond its limits.
            SpecError: it names secrets that are not set.
        """
        if self._caller.how != "none":  # who may name a new project
            async with self._db.session() as session:
                spec = await owned_spec(session, self._caller, spec, self._clock)
                check_limits(await limits_for(session, self._caller, spec.project), spec)
        if spec.secrets:
            async with self._db.session() as session:
                await check_secrets(session, spec)
        facts = await self._settled_facts()
        now = self._clock.now()
        job = self._as_submitted(spec, facts.jobs)
        entry = foresee_new(now, facts, self._options, job, await self._durations_now())
        placed = entry.placed is not None
        outlook = views.Outlook(
            when="now" if placed else "never" if entry.never else "later",
            position=entry.position,
            expected_at=now if placed else entry.earliest_start,
            reason=entry.text,
        )
        alone = self._as_submitted(spec, ())
        return Forecast(outlook, shortage(now, facts, self._options, alone))

    async def _durations_now(self) -> Durations:
        """Return the durations of completed jobs, as of a while ago: the page asks every 3 s."""
        now = self._clock.monotonic()
        if self._recent.durations is None or now - self._recent.at > _DURATIONS_SECONDS:
            self._recent.durations = await self._db.read(load_durations)
            self._recent.at = now
        return self._recent.durations

    async def _settled_facts(self) -> ClusterFacts:
        """Return the facts once all nodes have reported to this coordinator, or soon would have:
        until then what is stored of them is older than it, and a caller asks only once."""
        patience = _JUST_STARTED_SECONDS - self._heartbeats.listening_seconds
        # A host that stays away is reported as unreachable.
        for _ in range(math.ceil(patience / _ASK_SECONDS)):
            if await self._all_reported():
                break
            await asyncio.sleep(_ASK_SECONDS)
        async with self._db.session() as session:
            return await load_facts(session, self._heartbeats)

    async def _all_reported(self) -> bool:
        """Return whether all counted nodes have reported: jobs may be placed there, then or now."""
        async with self._db.session() as session:
            found = await session.scalars(
                select(Node.id).where(
                    Node.state.in_([NodeState.READY.value, NodeState.SUSPECT.value]),
                    Node.removing.is_(False),
                )
            )
            return all(map(self._heartbeats.has_reported, found))

    def _may_read(self, job: JobFacts) -> bool:
        return self._caller.may(Action.READ, job.project or "")

    def _cursor_behind(self, job: JobFacts) -> str:
        since, lower, number = queue_order(job, self._options)
        return pagination.encode("queue", repr(since), str(lower), number)

    def _as_submitted(self, spec: JobSpec, others: Sequence[JobFacts]) -> JobFacts:
        resources = spec.resources
        return JobFacts(
            id="",
            number=max((job.number for job in others), default=0) + 1,
            priority=spec.priority,
            state=JobState.QUEUED,
            reason="",
            attempt=0,
            workers=resources.workers,
            device=resources.device.value,
            queued_at=self._clock.now(),
            restarts=0,
            restarts_step=0,
            max_restarts=spec.recovery.max_restarts,
            step=0,
            sizes=tuple(sizes_of(spec) or ()),
            selector=resources.selector,
            in_container=spec.environment.image is not None,
            one_host=resources.one_host,
            project=spec.project or DEFAULT_PROJECT,
            user=spec.user,
            preemption=spec.preemption,
        )


def _view(entry: QueueEntry) -> views.QueueEntry:
    return views.QueueEntry(
        job_id=entry.job.id,
        name=entry.job.name or "",
        user=entry.job.user,
        project=entry.job.project,
        priority=entry.job.priority,
        queued_at=entry.job.queued_at,
        position=entry.position,
        reason=entry.text,
        reason_code=entry.reason.code.value,
        needs=entry.needs,
        earliest_start=entry.earliest_start,
        can_start=not entry.never,
    )


def _anonymous(entry: QueueEntry) -> views.QueueEntry:
    """Return a job of another project: how much it takes and when, not who or why."""
    hidden = {"job_id": None, "name": None, "user": None, "project": None, "reason": FOREIGN_JOB}
    return _view(entry).model_copy(update=hidden)


def _position_of(cursor: str) -> tuple[float, int, int]:
    """Return the key of `queue_order` in a cursor.

    Raises:
        InvalidCursorError: this list did not hand it out.
    """
    since, lower, number = pagination.decode("queue", cursor, str, str, int)
    try:
        return float(since), int(lower), int(number)
    except ValueError:
        raise InvalidCursorError from None
