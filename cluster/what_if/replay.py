"""Replay of recorded jobs by the scheduler itself, on any nodes, quotas and options.

Time jumps from one arrival or end to the next. At each the scheduler places, reserves and preempts
as on the cluster; `ASSUMPTIONS` names the differences.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from threading import Event

from trainhall.cluster.lifecycle.host_report import HostReport
from trainhall.cluster.lifecycle.states import AttemptState, JobState
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.scheduling.scheduler import QueueEntry, schedule
from trainhall.cluster.snapshot.model import (
    AttemptFacts,
    ClusterFacts,
    GrantFacts,
    HostFacts,
    JobFacts,
    NodeFacts,
)
from trainhall.cluster.what_if.workload import Work

ASSUMPTIONS = (
    "a job holds its devices for as many device-hours as it did, starts and restarts included",
    "an elastic job keeps the size it starts with, and is as much quicker as it is larger",
    "jobs come when they came, whatever became of earlier ones; pauses by users are left out",
    "nodes stay in service all the time",
)
_STEPS = 1_000_000
"""Steps of a run whose length the scheduler can foresee: one millionth is exact enough."""


@dataclass(frozen=True)
class Outcome:
    """Waits of the jobs in a replay, and the use of the devices."""

    waits: Mapping[str, float]
    """Seconds in the queue, all times together, by the id of each job that started."""
    never_started: Mapping[str, str]
    """Reasons of the jobs that cannot start, by id."""
    held_device_seconds: float
    span_seconds: float
    """From the first submission to the last end."""


@dataclass
class _Run:
    """A job that holds devices."""

    job: JobFacts
    attempt: AttemptFacts
    since: datetime
    seconds: float
    """Time it takes from there to its end."""

    @property
    def end(self) -> datetime:
        return self.since + timedelta(seconds=self.seconds)

    def at(self, now: datetime) -> JobFacts:
        """Return the job as the scheduler knows it: how far it is, if it counts steps."""
        if self.job.total_steps is None:
            return self.job
        share = (now - self.since) / timedelta(seconds=self.seconds)
        return replace(self.job, step=round(_STEPS * min(1.0, share)), total_steps=_STEPS)


def replay(
    work: Sequence[Work],
    nodes: Sequence[NodeFacts],
    options: ClusterOptions,
    cancelled: Event | None = None,
) -> Outcome:
    """Return what becomes of jobs, in the order of their submission, on these nodes; once it is
    cancelled, of the first ones."""
    played = _Replay(work, nodes, options)
    played.run(cancelled or Event())
    return played.outcome()


class _Replay:
    def __init__(
        self, work: Sequence[Work], nodes: Sequence[NodeFacts], options: ClusterOptions
    ) -> None:
        self._nodes = tuple(nodes)
        self._options = options
        self._coming = list(reversed(work))
        self._left = {each.job.id: each.device_seconds for each in work}
        """Device-seconds that each job still needs."""
        self._waits = dict.fromkeys(self._left, 0.0)
        self._waiting: dict[str, JobFacts] = {}
        self._runs: dict[str, _Run] = {}
        self._held = 0.0
        self._first = self._now = work[0].job.queued_at if work else datetime.min

    def run(self, cancelled: Event) -> None:
        while (now := self._next()) is not None and not cancelled.is_set():
            self._now = now
            for run in [run for run in self._runs.values() if run.end <= now]:
                self._stop(run)
            while self._coming and self._coming[-1].job.queued_at <= now:
                job = self._coming.pop().job
                self._waiting[job.id] = job
            # Devices of preempted jobs are free at once, and the scheduler places on them next.
            while self._pass():
                pass

    def outcome(self) -> Outcome:
        never = {
            entry.job.id: entry.reason.text
            for entry in schedule(self._now, self._facts(), self._options)
        }
        waits = {job_id: wait for job_id, wait in self._waits.items() if job_id not in never}
        span = (self._now - self._first).total_seconds()
        return Outcome(waits, never, self._held, span)

    def _next(self) -> datetime | None:
        """When something happens next; None: nothing does any more."""
        ends = [run.end for run in self._runs.values()]
        return min([*ends, *(work.job.queued_at for work in self._coming[-1:])], default=None)

    def _pass(self) -> bool:
        """Apply what the scheduler decides; return whether it preempted a job."""
        preempted = False
        for entry in schedule(self._now, self._facts(), self._options):
            if entry.placed is not None:
                self._start(entry)
            for helper in entry.preempted:
                preempted = True
                run = self._runs[helper.job.id]
                self._stop(run)
                self._waiting[run.job.id] = replace(
                    run.job, state=JobState.QUEUED, queued_at=self._now
                )
        return preempted

    def _facts(self) -> ClusterFacts:
        runs = self._runs.values()
        return ClusterFacts(
            nodes=self._nodes,
            jobs=(*(run.at(self._now) for run in runs), *self._waiting.values()),
            attempts=tuple(run.attempt for run in runs),
            grants=tuple(
                GrantFacts(host.node_id, index, run.job.id, run.attempt.number)
                for run in runs
                for host in run.attempt.hosts
                for index in host.devices
            ),
        )

    def _start(self, entry: QueueEntry) -> None:
        assert entry.placed is not None
        job = self._waiting.pop(entry.job.id)
        self._waits[job.id] += (self._now - job.queued_at).total_seconds()
        number = job.attempt + 1
        attempt = AttemptFacts(
            job_id=job.id,
            number=number,
            generation=1,
            state=AttemptState.RUNNING,
            goal="run",
            failure=None,
            hosts=tuple(
                HostFacts(
                    host.node_id, host.node_name, HostReport("running"),
                    devices=tuple(host.device_indices),
                )
                for host in entry.placed
            ),
            begun=True,
            started_at=self._now,
            running_at=self._now,
            first_step=1,
            device=entry.needs.device,
        )  # fmt: skip
        started = replace(job, state=JobState.RUNNING, attempt=number, workers=attempt.size, step=0)
        self._runs[job.id] = _Run(
            started, attempt, self._now, max(self._left[job.id] / attempt.size, 1e-3)
        )

    def _stop(self, run: _Run) -> None:
        del self._runs[run.job.id]
        took = run.attempt.size * (self._now - run.since).total_seconds()
        self._left[run.job.id] = max(0.0, self._left[run.job.id] - took)
        self._held += took
