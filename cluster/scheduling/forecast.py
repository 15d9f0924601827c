"""Forecast: expected start times of waiting jobs, computed on demand.

A job of unknown duration is assumed to hold its devices without end, and jobs that wait for such a
one start at an unknown time. So a forecast is late rather than early, as long as running jobs keep
their pace and no new job comes in between.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from trainhall.cluster.lifecycle.reasons import clock_time
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.scheduling import reasons
from trainhall.cluster.scheduling.estimates import expected_seconds, later
from trainhall.cluster.scheduling.scheduler import Pass, QueueEntry
from trainhall.cluster.snapshot.model import ClusterFacts, JobFacts

_FORESEEN = 200
"""So many jobs that wait their turn, from the first on: what is behind them is too far away."""


def foresee(now: datetime, facts: ClusterFacts, options: ClusterOptions) -> list[QueueEntry]:
    """Return the queue of `schedule`, with the times at which jobs are expected to start."""
    scheduling = Pass(now, facts, options)
    entries = scheduling.run()
    forecast = _Forecast(scheduling, entries)
    turns = [entry for entry in entries if entry.waits_its_turn][:_FORESEEN]
    forecasts = {entry.job.id: forecast.with_time(entry) for entry in turns}
    over = [entry for entry in entries if entry.over_quota][:_FORESEEN]
    forecasts |= {entry.job.id: forecast.with_quota_headroom(entry) for entry in over}
    return [forecasts.get(entry.job.id, entry) for entry in entries]


def foresee_new(
    now: datetime, facts: ClusterFacts, options: ClusterOptions, job: JobFacts
) -> QueueEntry:
    """Return the queue entry of a job as if it was submitted now."""
    entries = foresee(now, replace(facts, jobs=(*facts.jobs, job)), options)
    return next(entry for entry in entries if entry.job is job)


class _Forecast:
    """Forecast of one job after the other; each takes the devices that it will start on."""

    def __init__(self, scheduling: Pass, entries: Iterable[QueueEntry]) -> None:
        self._scheduling = scheduling
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
        timeline = scheduling.timeline(kind)
        reservation = served.reservation
        if reservation is not None and reservation.job is job:
            devices, at = reservation.devices, reservation.at
        else:
            devices, at = timeline.earliest(
                scheduling.now, job.sizes[0], node_ids, one_host=served.group.one_host
            )
            timeline.keep(devices)
        if at is None:
            timeline.keep_all(node_ids)
            return entry._replace(forecast=self._unknown(kind, node_ids))
        seconds = expected_seconds(job, job.sizes[0])
        if seconds is None:
            self._endless.append((job.id, kind, frozenset(devices)))
        elif (end := later(at, seconds)) is not None:
            timeline.give_back(devices, end)
        expected = f"expected at {clock_time(at, scheduling.now)}"
        return entry._replace(forecast=expected, earliest_start=at)

    def with_quota_headroom(self, entry: QueueEntry) -> QueueEntry:
        """Not before so much of its quotas comes free; then it may still wait for devices."""
        scheduling = self._scheduling
        at, endless = scheduling.quotas.headroom_from(entry.job, scheduling.running.ends)
        if at is None:
            return entry._replace(forecast=_because_of(endless, scheduling.labels))
        when = clock_time(at, scheduling.now)
        return entry._replace(forecast=f"not before {when}", earliest_start=at)

    def _unknown(self, kind: str, node_ids: Iterable[str]) -> str:
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
        }
        ahead = [
            job_id
            for job_id, its, where in self._endless
            if its == kind and not ids.isdisjoint(where)
        ]
        return _because_of([*endless, *ahead], self._scheduling.labels)


def _because_of(job_ids: Sequence[str], labels: reasons.Labels) -> str:
    if not job_ids:
        return "start time unknown"
    return f"start time unknown: no end is known for {reasons.listed([*map(labels.of, job_ids)])}"
