"""Checks of preemption, and of the order of waiting jobs.

While things fail, a job may lose again and again the devices that others released for it. So
everything that takes time is checked once the last fault is over.
"""

from dataclasses import dataclass

from trainhall.cluster.lifecycle.states import WAITING_STATES, JobState
from trainhall.cluster.simulator.checks.violation import Check, Inspected

PREEMPTION = "preemption"
RESERVATIONS = "reservations"

PREEMPTED = f"{PREEMPTION}: a job paused for one of higher priority"
SHRANK = f"{PREEMPTION}: a job shrank for one of higher priority"
STARTED = f"{PREEMPTION}: a job started for which others were preempted"
WAITED = f"{RESERVATIONS}: a large job waited while small ones came"
STARTED_NEXT = f"{RESERVATIONS}: a large job started before small ones that came later"
EXERCISED = (PREEMPTED, SHRANK, STARTED, WAITED, STARTED_NEXT)

STARTS_WITHIN_SECONDS = 100.0
"""Counted from a preemption for the job, or from when it is next in the queue, and from the last
fault: what runs may have to notice first that a host is gone."""

_WAITS = {state.value for state in WAITING_STATES}


@dataclass
class _Promise:
    """A job for which others are preempted."""

    since: float
    paused: set[str]
    """Jobs that pause for it."""


class PreemptionChecks(Check):
    """Check preemption."""

    def __init__(self, inspected: Inspected) -> None:
        super().__init__(inspected)
        self.is_calm = False
        """The last fault is over."""
        self._seen = 0
        self._promises: dict[str, _Promise] = {}
        """By the job for which others are preempted, as long as it waits."""
        self._preempted_for: set[tuple[str, str]] = set()
        """Pairs of a preempted job and its beneficiary, over the whole run."""
        self._large: dict[str, float] = {}
        """Jobs that are next in the queue, and since when."""

    def calm(self) -> None:
        """Note the last fault's end: from here on the order of starts counts."""
        self.is_calm = True
        self._promises.clear()

    def mark_next(self, job_id: str) -> None:
        """Protect this job: no later submission may start first if that delays it."""
        self._large[job_id] = self._now()

    def waits(self, job_id: str) -> bool:
        return job_id in self._large

    def committed(self, states: dict[str, str]) -> None:
        """Check the starts, given the `states` of all jobs."""
        self._story.checks[PREEMPTION] += 1
        rows = self._db.execute(
            "SELECT rowid, job_id, kind, data ->> 'for_job' FROM events WHERE rowid > ? "
            "AND code = 'preempted' AND data ->> 'for_job' IS NOT NULL ORDER BY rowid",
            (self._seen,),
        )
        for rowid, job_id, kind, for_job in rows.fetchall():
            self._seen = rowid
            self._preempts(job_id, for_job, pauses=kind == "attempt")
        for job_id, promise in list(self._promises.items()):
            if states.get(job_id) not in _WAITS:
                self._story.exercised[STARTED] += states.get(job_id) == JobState.STARTING
                del self._promises[job_id]
            elif self.is_calm and self._now() - promise.since > STARTS_WITHIN_SECONDS:
                waited = f"{STARTS_WITHIN_SECONDS:g} s after {sorted(promise.paused)} paused for it"
                self._violated(PREEMPTION, f"job {job_id} has not started {waited}")
                del self._promises[job_id]
        for job_id, since in list(self._large.items()):
            self._story.checks[RESERVATIONS] += 1
            if states.get(job_id) not in _WAITS:
                self._story.exercised[STARTED_NEXT] += 1
                del self._large[job_id]
            elif self._now() - since > STARTS_WITHIN_SECONDS:
                what = f"job {job_id} has waited for {self._now() - since:.0f} s"
                self._violated(RESERVATIONS, f"{what} behind smaller ones that came later")
                del self._large[job_id]

    def _preempts(self, helper: str, job_id: str, *, pauses: bool) -> None:
        self._story.exercised[PREEMPTED if pauses else SHRANK] += 1
        rows = self._db.execute(
            "SELECT id, priority FROM jobs WHERE id IN (?, ?)", (helper, job_id)
        )
        priorities = dict(rows.fetchall())
        if priorities[helper] >= priorities[job_id]:
            self._violated(
                PREEMPTION, f"job {helper} is preempted for {job_id} of no higher priority"
            )
        self._preempted_for.add((helper, job_id))
        if (job_id, helper) in self._preempted_for:
            self._violated(PREEMPTION, f"jobs {helper} and {job_id} preempt each other")
        promise = self._promises.setdefault(job_id, _Promise(self._now(), set()))
        if pauses and self.is_calm:
            if helper in promise.paused:
                what = f"job {helper} paused twice for job {job_id}, which has not started"
                self._violated(PREEMPTION, what)
            promise.paused.add(helper)
