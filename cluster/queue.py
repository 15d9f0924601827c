"""The queue as people ask for it: who waits for what, until when, and what a new job would meet."""

from collections.abc import Sequence

from sqlalchemy import select

from trainhall.cluster.elastic import sizes_of
from trainhall.cluster.facts import JobFacts
from trainhall.cluster.forecast import foresee, foresee_new
from trainhall.cluster.hearing import Hearing
from trainhall.cluster.lifecycle import WAITING_STATES, JobState
from trainhall.cluster.load import load_facts
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.ports import Clock
from trainhall.cluster.scheduler import shortage
from trainhall.cluster.views import Outlook, QueueEntryView
from trainhall.db.database import Database
from trainhall.db.models import Job
from trainhall.training.spec import JobSpec


class QueueService:
    def __init__(
        self, db: Database, clock: Clock, options: ClusterOptions, hearing: Hearing
    ) -> None:
        self._db = db
        self._clock = clock
        self._options = options
        self._hearing = hearing

    async def list(self) -> Sequence[QueueEntryView]:
        """The jobs that wait, in the order in which they will be started, each with its reason."""
        async with self._db.session() as session:
            facts = await load_facts(session, self._hearing)
            states = [state.value for state in WAITING_STATES]
            rows = await session.execute(select(Job.id, Job.name).where(Job.state.in_(states)))
            names = dict(rows.all())
        return [
            QueueEntryView(
                job_id=entry.job.id,
                name=names[entry.job.id],
                priority=entry.job.priority,
                queued_at=entry.job.queued_at,
                position=entry.position,
                reason=entry.reason,
                needs=entry.needs,
                earliest_start=entry.earliest_start,
            )
            for entry in foresee(self._clock.now(), facts, self._options)
            if entry.job.id in names  # it may have been paused between the two questions
        ]

    async def outlook(self, spec: JobSpec) -> Outlook:
        """When a job would start that was submitted now."""
        now = self._clock.now()
        async with self._db.session() as session:
            facts = await load_facts(session, self._hearing)
        entry = foresee_new(now, facts, self._options, self._as_submitted(spec, facts.jobs))
        if entry.placed is not None:
            return Outlook("now", entry.position, now, entry.reason)
        when = "never" if entry.never else "later"
        return Outlook(when, entry.position, entry.earliest_start, entry.reason)

    async def shortage(self, spec: JobSpec) -> str | None:
        """Why the cluster as it is could not hold such a job, were it the only one."""
        async with self._db.session() as session:
            facts = await load_facts(session, self._hearing)
        return shortage(self._clock.now(), facts, self._options, self._as_submitted(spec, ()))

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
            one_host=resources.one_host,
            project=spec.project,
            user=spec.user,
            preemption=spec.preemption,
        )
