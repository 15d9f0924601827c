"""The comparison of two replays: waits of all jobs, and of each project and user."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence, Set
from datetime import datetime
from threading import Event

from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.queue.durations import describe
from trainhall.cluster.quotas import KINDS
from trainhall.cluster.snapshot.model import JobFacts, NodeFacts
from trainhall.cluster.what_if import views
from trainhall.cluster.what_if.change import Change
from trainhall.cluster.what_if.replay import ASSUMPTIONS, Outcome, replay
from trainhall.cluster.what_if.workload import Work, Workload

MAX_ACCOUNTS = 200
MAX_CAUSES = 5


def compare(
    workload: Workload,
    nodes: Sequence[NodeFacts],
    options: ClusterOptions,
    change: Change,
    since: datetime,
    days: float,
    cancelled: Event | None = None,
) -> views.WhatIf:
    """Replay the recorded jobs without and with the change.

    Args:
        since: waits of jobs that were submitted before are not counted.
    """
    counted = [work for work in workload.work if work.job.queued_at >= since]
    before = replay(workload.work, nodes, options, cancelled)
    more = change.nodes(nodes)
    after = replay(change.work(workload.work), more, change.options(options), cancelled)
    jobs = [work.job for work in counted]
    # A mean over those that start on one cluster alone falls when the slowest no longer start.
    both = {job.id for job in jobs if job.id in before.waits and job.id in after.waits}
    lost = sum(job.id in before.waits and job.id not in both for job in jobs)
    recorded = [
        work.waited_seconds
        for work in counted
        if work.waited_seconds is not None and work.job.id in both
    ]
    return views.WhatIf(
        days=days,
        jobs=len(counted),
        warning=_warning(lost, len(jobs)) if lost else None,
        no_longer_started=lost,
        compared=len(both),
        left_out=workload.left_out,
        never_ran=sum(work.assumed is not None for work in counted),
        is_cut=workload.is_cut,
        recorded=_waits(recorded),
        before=_replayed(before, nodes, counted, both),
        after=_replayed(after, more, counted, both),
        accounts=_accounts(jobs, before, after, both),
        assumptions=[*ASSUMPTIONS, *describe(w.assumed for w in counted if w.assumed)],
    )


def _warning(lost: int, jobs: int) -> str:
    starts, them = ("starts", "it") if lost == 1 else ("start", "them")
    return (
        f"{lost} of {jobs} job{'s' if jobs != 1 else ''} would never start with the changes, but "
        f"{starts} without them. The waits leave {them} out."
    )


def _replayed(
    outcome: Outcome, nodes: Sequence[NodeFacts], works: Iterable[Work], compared: Set[str]
) -> views.Replayed:
    devices = Counter(device.kind for node in nodes for device in node.devices)
    ids = {work.job.id: work.assumed is not None for work in works}
    possible = outcome.span_seconds * devices.total()
    reasons = Counter(reason for job_id, reason in outcome.never_started.items() if job_id in ids)
    return views.Replayed(
        devices=dict(devices),
        never_started=reasons.total(),
        causes=[views.NeverStarted(reason=r, jobs=n) for r, n in reasons.most_common(MAX_CAUSES)],
        waits=_waits_of(compared, outcome),
        first_starts=sum(
            never_ran and job_id in outcome.waits for job_id, never_ran in ids.items()
        ),
        utilization=100 * outcome.held_device_seconds / possible if possible else 0.0,
    )


def _accounts(
    jobs: Iterable[JobFacts], before: Outcome, after: Outcome, compared: Set[str]
) -> list[views.AccountWaits]:
    ids: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for job in jobs:
        for kind, name in zip(KINDS, (job.project, job.user), strict=True):
            if name is not None:
                ids[kind, name].add(job.id)
    largest = sorted(ids.items(), key=lambda item: (-len(item[1]), item[0]))
    return [
        views.AccountWaits(
            kind=kind,
            name=name,
            jobs=len(own),
            never_started_before=len(own & before.never_started.keys()),
            never_started_after=len(own & after.never_started.keys()),
            before=_waits_of(own & compared, before),
            after=_waits_of(own & compared, after),
        )
        for (kind, name), own in largest[:MAX_ACCOUNTS]
    ]


def _waits_of(ids: Iterable[str], outcome: Outcome) -> views.Waits | None:
    return _waits([outcome.waits[job_id] for job_id in ids])


def _waits(seconds: Sequence[float]) -> views.Waits | None:
    if not seconds:
        return None
    ordered = sorted(seconds)
    return views.Waits(
        mean=statistics.fmean(ordered),
        median=statistics.median(ordered),
        p95=ordered[round(0.95 * (len(ordered) - 1))],
        max=ordered[-1],
    )
