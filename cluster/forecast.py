"""When waiting jobs are expected to start, made when somebody asks.

A job of which nobody knows how long it will take is taken to hold its devices for ever, and what
waits for such a one starts at a time that nobody knows. So a time that is told is late rather than
early, as long as those that run keep their pace and nobody comes in between.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from trainhall.cluster import reasons
from trainhall.cluster.estimates import expected_length
from trainhall.cluster.facts import ClusterFacts, JobFacts
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.scheduler import Pass, QueueEntry

_FORESEEN = 200
"""So many jobs that wait their turn, from the first on: what is behind them is too far away."""


def foresee(now: datetime, facts: ClusterFacts, options: ClusterOptions) -> list[QueueEntry]:
    """The queue as `schedule` gives it, with the times at which jobs are expected to start."""
    scheduling = Pass(now, facts, options)
    entries = scheduling.run()
    waiting = [entry for entry in entries if entry.waits_its_turn][:_FORESEEN]
    told = {entry.job.id: _with_time(scheduling, entry) for entry in waiting}
    return [told.get(entry.job.id, entry) for entry in entries]


def foresee_new(
    now: datetime, facts: ClusterFacts, options: ClusterOptions, job: JobFacts
) -> QueueEntry:
    """What would become of a job that was submitted now."""
    entries = foresee(now, replace(facts, jobs=(*facts.jobs, job)), options)
    return next(entry for entry in entries if entry.job is job)


def _with_time(scheduling: Pass, entry: QueueEntry) -> QueueEntry:
    job, served = entry.job, scheduling.supply.for_job(entry.job)
    timeline = scheduling.timeline(served.group.kind)
    reservation = served.reservation
    node_ids = served.part.node_ids
    if reservation is not None and reservation.job is job:
        devices, at = reservation.devices, reservation.at
    else:
        devices, at = timeline.earliest(
            scheduling.now, job.sizes[0], node_ids, one_host=served.group.one_host
        )
        timeline.keep(devices)
    if at is None:
        timeline.keep_all(node_ids)
        return entry._replace(reason=f"{entry.reason}; {_unknown(scheduling, node_ids)}")
    length = expected_length(job, job.sizes[0])
    if length is not None and (end := _later(at, length)) is not None:
        timeline.give_back(devices, end)
    expected = f"{entry.reason}; expected at {clock_time(at, scheduling.now)}"
    return entry._replace(reason=expected, earliest_start=at)


def clock_time(when: datetime, now: datetime) -> str:
    """As people tell times: with the day only if it is another one."""
    told = when.strftime("%H:%M UTC")
    return told if when.date() == now.date() else f"{told} on {when.strftime('%b %d')}"


def _unknown(scheduling: Pass, node_ids: Iterable[str]) -> str:
    """Why no time can be told."""
    ids = set(node_ids)
    running = scheduling.running
    silent = {
        grant.job_id: None
        for grant in scheduling.facts.grants
        if grant.node_id in ids and running.coming[grant.node_id, grant.device_index] is None
    }
    if not silent:
        return "when is not known"
    return f"when is not known, as {reasons.listed('job', list(silent))} may take any time"


def _later(at: datetime, length: timedelta) -> datetime | None:
    try:
        return at + length
    except OverflowError:
        return None
