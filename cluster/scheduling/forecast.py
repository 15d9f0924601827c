"""Forecast: expected start times of waiting jobs, computed on demand.

A job whose pace is unknown is assumed to take as long as similar jobs that have completed (their
median). Without any it is assumed to hold its devices without end, and jobs that wait for such a
one start at an unknown time. The scheduler itself decides by known paces alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property

from trainhall.cluster.lifecycle.reasons import clock_time
from trainhall.cluster.lifecycle.states import WAITING_STATES
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.queue.durations import Durations
from trainhall.cluster.scheduling import reasons
from trainhall.cluster.scheduling.estimates import expected_seconds, later
from trainhall.cluster.scheduling.reservation import Timeline
from trainhall.cluster.scheduling.scheduler import Pass, QueueEntry
from trainhall.cluster.snapshot.model import AttemptFacts, ClusterFacts, JobFacts

_FORESEEN = 200
"""So many jobs that wait their turn, from the first on: what is behind them is too far away."""


def foresee(
    now: datetime,
    facts: ClusterFacts,
    options: ClusterOptions,
    durations: Durations | None = None,
) -> list[QueueEntry]:
    """Return the queue of `schedule`, with the times at which jobs are expected to start."""
    scheduling = Pass(now, facts, options)
    entries = scheduling.run()
    forecast = _Forecast(scheduling, entries, durations or Durations([]))
    turns = [entry for entry in entries if entry.waits_its_turn][:_FORESEEN]
    forecasts = {entry.job.id: forecast.with_time(entry) for entry in turns}
    over = [entry for entry in entries if entry.over_quota][:_FORESEEN]
    forecasts |= {entry.job.id: forecast.with_quota_headroom(entry) for entry in over}
    return [forecasts.get(entry.job.id, entry) for entry in entries]


def foresee_new(
    now: datetime,
    facts: ClusterFacts,
    options: ClusterOptions,
    job: JobFacts,
    durations: Durations | None = None,
) -> QueueEntry:
    """Return the queue entry of a job as if it was submitted now."""
    entries = foresee(now, replace(facts, jobs=(*facts.jobs, job)), options, durations)
    return next(entry for entry in entries if entry.job is job)


class _Forecast:
    """Forecast of one job after the other; each takes the devices that it will start on."""

    def __init__(
        self, scheduling: Pass, entries: Iterable[QueueEntry], durations: Durations
    ) -> None:
        self._scheduling = scheduling
        self._durations = durations
        self._kinds: set[str] = set()
        """Kinds of devices whose timelines have the assumed ends."""
        self._given = {
            (node_id, index)
            for entry in entries
            for helper in entry.preempted
            for node_id, indices in helper.devices.items()
            for index in indices
        }
        """Devices that running jobs release for others."""
        self._endless: list[tuple[str, str, frozenset[str]]] = []
        """Jobs that are expected to start and whose duration is unknown: id, and the kind and nodes
        of the devices that they are to get."""

    def with_time(self, entry: QueueEntry) -> QueueEntry:
        scheduling = self._scheduling
        job, served = entry.job, scheduling.supply.for_job(entry.job)
        kind, node_ids = served.group.kind, served.part.node_ids
        timeline = self._timeline(kind)
        reservation = served.reservation
        at: datetime | None = None
        if reservation is not None and reservation.job is job:
            devices, at = reservation.devices, reservation.at
            if at is None:
                timeline.give_back(reservation.free, scheduling.now)
        if at is None:
            devices, at = timeline.earliest(
                scheduling.now, job.sizes[0], node_ids, one_host=served.group.one_host
            )
            timeline.keep(devices)
        if at is None:
            timeline.keep_all(node_ids)
            return entry._replace(forecast=self._unknown(job, kind, node_ids))
        seconds = expected_seconds(job, job.sizes[0])
        if seconds is None and (like := self._durations.like(job.name, job.user)) is not None:
            seconds = like.seconds
        if seconds is None:
            self._endless.append((job.id, kind, frozenset(devices)))
        elif (end := later(at, seconds)) is not None:
            timeline.give_back(devices, end)
        expected = f"expected at {clock_time(at, scheduling.now)}"
        return entry._replace(forecast=expected, earliest_start=at)

    def with_quota_headroom(self, entry: QueueEntry) -> QueueEntry:
        """Not before so much of its quotas comes free; then it may still wait for devices."""
        scheduling = self._scheduling
        ends = {**self._assumed_ends, **scheduling.running.ends}
        at, endless = scheduling.quotas.headroom_from(entry.job, ends)
        if at is None:
            return entry._replace(forecast=self._because_of(entry.job, endless))
        when = clock_time(at, scheduling.now)
        return entry._replace(forecast=f"not before {when}", earliest_start=at)

    def _unknown(self, job: JobFacts, kind: str, node_ids: Iterable[str]) -> str:
        """Return the reason that the time is unknown.

        A job holds, or will hold, these nodes for an unknown time.
        """
        ids = set(node_ids)
        running = self._scheduling.running
        endless = {
            grant.job_id: None
            for grant in self._scheduling.facts.grants
            if grant.node_id in ids
            and (device := (grant.node_id, grant.device_index)) not in self._given
            and running.coming[device] is None
            and grant.job_id not in self._assumed_ends
        }
        ahead = [
            job_id
            for job_id, its, where in self._endless
            if its == kind and not ids.isdisjoint(where)
        ]
        return self._because_of(job, [*endless, *ahead])

    def _timeline(self, kind: str) -> Timeline:
        """Return the timeline of the pass, with the assumed ends of jobs of unknown pace."""
        timeline = self._scheduling.timeline(kind)
        if kind not in self._kinds:
            self._kinds.add(kind)
            coming = self._scheduling.running.coming
            for grant in self._scheduling.facts.grants:
                device = (grant.node_id, grant.device_index)
                end = self._assumed_ends.get(grant.job_id)
                if end is not None and coming[device] is None and device not in self._given:
                    timeline.expect(device, end)
        return timeline

    @cached_property
    def _jobs(self) -> Mapping[str, JobFacts]:
        return {job.id: job for job in self._scheduling.facts.jobs}

    @cached_property
    def _assumed_ends(self) -> Mapping[str, datetime]:
        """When running jobs of unknown pace end, if they take as long as similar ones."""
        scheduling, found = self._scheduling, {}
        for job in scheduling.facts.jobs:
            attempt = scheduling.running.attempts.get(job.id)
            if attempt is None or job.id in scheduling.running.ends:
                continue
            end = self._assumed_end(job, attempt)
            if end is not None and end > scheduling.now:
                found[job.id] = end
        return found

    def _assumed_end(self, job: JobFacts, attempt: AttemptFacts) -> datetime | None:
        like = self._durations.like(job.name, job.user)
        begin = attempt.running_at or attempt.started_at
        return None if like is None or begin is None else later(begin, like.seconds)

    def _because_of(self, reader: JobFacts, job_ids: Sequence[str]) -> str:
        labels = self._scheduling.labels
        own = [job_id for job_id in job_ids if not labels.is_foreign(job_id, reader)]
        if not own:
            why = ": no end is known for jobs of other projects" if job_ids else ""
            return f"start time unknown{why}"
        texts = [labels.of(job_id, reader) for job_id in own]
        why = self._why_unknown(own[0], "it" if len(texts) == 1 else texts[0])
        return f"start time unknown: no end is known for {reasons.listed(texts)}{why}"

    def _why_unknown(self, job_id: str, subject: str) -> str:
        """Say why no end of a job is known.

        Args:
            subject: the job in that sentence.
        """
        job = self._jobs.get(job_id)
        if job is None:
            return ""
        if (like := self._durations.like(job.name, job.user)) is not None:
            return f" ({subject} has run for longer than {like.basis})"
        if job.state in WAITING_STATES:
            missing = "has not run yet"
        else:
            missing = "reports no total steps" if job.total_steps is None else "has just started"
        return f" ({subject} {missing}, and no job of its name or user has completed)"
