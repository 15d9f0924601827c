"""Loading what the reconciler decides from: everything that is not finished, and nothing else."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from sqlalchemy import func, select, union
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from trainhall.cluster.lifecycle.generations import has_stepped
from trainhall.cluster.lifecycle.host_report import HostReport, parse_failure, reports_of
from trainhall.cluster.lifecycle.states import (
    ACTIVE_ATTEMPT_STATES,
    ACTIVE_STATES,
    WAITING_STATES,
    AttemptState,
    Goal,
    JobKind,
    JobState,
    NodeState,
)
from trainhall.cluster.nodes.heartbeats import HeartbeatMonitor
from trainhall.cluster.snapshot.model import (
    AttemptFacts,
    ClusterFacts,
    DeviceFacts,
    GrantFacts,
    HostFacts,
    JobFacts,
    NodeFacts,
)
from trainhall.cluster.snapshot.undeliverable import UndeliverableAttempts
from trainhall.db.documents import Allocation
from trainhall.db.models import Attempt, Checkpoint, Device, Grant, Job, JobProgress, Node
from trainhall.training.checkpoint.format.names import parse_name
from trainhall.training.fencing import FencingToken
from trainhall.training.link.failure import Cause, Failure

# A pass follows every change, and building a statement takes as long as running it.
_GRANTS = select(Grant.node_id, Grant.device_index, Grant.job_id, Grant.attempt)
_DEVICES = (
    select(Device.node_id, Device.index, Device.kind)
    .where(Device.gone.is_(False))
    .order_by(Device.node_id, Device.index)
)
_NODES = select(
    Node.id,
    Node.name,
    Node.state,
    Node.removing,
    Node.labels,
    Node.projects,
    Node.host_use["container_engine"].as_string().label("has_containers"),
    Node.drain_reason,
    Node.removed_by,
).order_by(Node.name)
# A spec may be large: only what is needed of it leaves the database.
_JOBS = (
    select(
        Job.id,
        Job.name,
        Job.number,
        Job.priority,
        Job.state,
        Job.reason,
        Job.reason_code,
        Job.asked_by,
        Job.attempt,
        Job.world_size.label("workers"),
        Job.sizes,
        Job.spec["resources"].label("resources"),
        Job.project,
        Job.user,
        Job.spec["environment"]["image"].as_string().label("image"),
        Job.spec["preemption"].as_boolean().label("preemption"),
        Job.spec["recovery"]["max_restarts"].as_integer().label("max_restarts"),
        Job.spec["training"]["pause_at"].label("pause_at"),
        Job.spec["interactive"]["idle_seconds"].as_float().label("idle_seconds"),
        Job.experiment_id.is_not(None).label("in_experiment"),
        Job.queued_at,
        Job.restarts,
        Job.restarts_step,
        JobProgress.step,
        JobProgress.total_steps,
    )
    .join(JobProgress, JobProgress.job_id == Job.id)
    .where(
        Job.state.in_([s.value for s in WAITING_STATES | ACTIVE_STATES]),
        Job.kind == JobKind.JOB.value,
    )
    .order_by(Job.number)
)
_ENDS_OF_RECOVERING = (
    select(Job.id, Attempt.number, Attempt.reason, Attempt.finished_at)
    .join(Attempt, (Attempt.job_id == Job.id) & (Attempt.number == Job.attempt))
    .where(Job.state == JobState.RECOVERING.value)
)
# By job, from the newest attempt on: an index on the state would lead to all that ever failed.
_FAILURES_OF_RESTARTED = select(
    Job.id,
    select(Attempt.failure)
    .where(
        Attempt.job_id == Job.id,
        Attempt.number < Job.attempt,
        Attempt.state == AttemptState.FAILED.value,
    )
    .order_by(Attempt.number.desc())
    .limit(1)
    .scalar_subquery(),
).where(Job.state.in_([s.value for s in ACTIVE_STATES]), Job.restarts > 0)
_SAVED_STEPS = (
    select(
        Job.id,
        Attempt.checkpoint_plan,
        select(func.max(Checkpoint.step))
        .where(Checkpoint.job_id == Job.id, Checkpoint.attempt == Job.attempt)
        .scalar_subquery(),
    )
    .join(Attempt, (Attempt.job_id == Job.id) & (Attempt.number == Job.attempt))
    .where(Job.state.in_([s.value for s in ACTIVE_STATES]))
)
_METRICS_OF_WAITING = (
    select(Job.id, JobProgress.metrics)
    .join(JobProgress, JobProgress.job_id == Job.id)
    .join(Attempt, (Attempt.job_id == Job.id) & (Attempt.number == Job.attempt))
    .where(
        Job.state.in_([s.value for s in WAITING_STATES]),
        # One that was resized since, or restored with other resources, has another pace.
        Attempt.world_size == Job.world_size,
    )
)
# A union, since one condition with OR would be asked of every attempt that there ever was.
_HOLDING = union(
    select(Attempt.job_id, Attempt.number).where(
        Attempt.state.in_([s.value for s in ACTIVE_ATTEMPT_STATES])
    ),
    select(Grant.job_id, Grant.attempt),
).subquery()
_ATTEMPTS = (
    select(Attempt, Job.spec["task"]["name"].as_string())
    .join(
        _HOLDING,
        (Attempt.job_id == _HOLDING.c.job_id) & (Attempt.number == _HOLDING.c.number),
    )
    .join(Job, Job.id == Attempt.job_id)
    .order_by(Attempt.job_id, Attempt.number)
)


async def load_facts(
    session: AsyncSession,
    heartbeats: HeartbeatMonitor,
    undeliverable: UndeliverableAttempts | None = None,
) -> ClusterFacts:
    """Load the facts.

    Args:
        undeliverable: attempts whose spec this version does not understand; a caller that
            decides nothing about attempts needs none.
    """
    # Rows of columns do without the ORM, which takes as long as all the rest of a small query.
    connection = await session.connection()
    return ClusterFacts(
        nodes=await _nodes(connection, heartbeats),
        jobs=await _jobs(connection),
        attempts=await _attempts(session, undeliverable or UndeliverableAttempts()),
        listening_seconds=heartbeats.listening_seconds,
        grants=tuple(GrantFacts(*row) for row in await connection.execute(_GRANTS)),
    )


async def _nodes(
    connection: AsyncConnection, heartbeats: HeartbeatMonitor
) -> tuple[NodeFacts, ...]:
    devices: dict[str, list[DeviceFacts]] = defaultdict(list)
    for node_id, index, kind in await connection.execute(_DEVICES):
        devices[node_id].append(DeviceFacts(index, kind))
    rows = await connection.execute(_NODES)
    return tuple(
        NodeFacts(
            **row._asdict()
            | {
                "state": NodeState(row.state),
                "has_containers": row.has_containers is not None,
                "projects": None if row.projects is None else frozenset(row.projects),
            },
            seconds_since_heartbeat=heartbeats.seconds_since(row.id),
            devices=tuple(devices[row.id]),
        )
        for row in rows
    )


@dataclass(frozen=True)
class _Histories:
    """Facts of jobs' earlier attempts, by job."""

    ended: dict[str, tuple[str, datetime | None]]
    """Reason and time of the end of the attempt before; of recovering jobs."""
    failed: dict[str, Failure]
    saved: dict[str, int]
    paces: dict[str, float]


async def _jobs(connection: AsyncConnection) -> tuple[JobFacts, ...]:
    found = await connection.execute(_JOBS)
    rows = found.all()
    histories = await _histories(connection, rows)
    return tuple(_job_facts(row, histories) for row in rows)


async def _histories(connection: AsyncConnection, rows: Sequence[Any]) -> _Histories:
    # What is rarely there is asked for where it can be.
    recovering = any(row.state == JobState.RECOVERING for row in rows)
    active = [row for row in rows if row.state in ACTIVE_STATES]
    restarted = any(row.restarts for row in active)
    ran = any(row.attempt and row.state in WAITING_STATES for row in rows)
    return _Histories(
        ended=await _ends_of_recovering(connection) if recovering else {},
        failed=await _failures_of_restarted(connection) if restarted else {},
        saved=await _saved_steps(connection) if active else {},
        paces=await _paces_of_waiting(connection) if ran else {},
    )


def _job_facts(row: Any, histories: _Histories) -> JobFacts:
    columns = row._asdict()
    resources, job_id = columns.pop("resources"), row.id
    image = columns.pop("image")
    last_failure, last_ended_at = histories.ended.get(job_id, (None, None))
    return JobFacts(
        **columns
        | {
            "state": JobState(row.state),
            "sizes": tuple(row.sizes or ()),
            "preemption": row.preemption is not False,
            "pause_at": tuple(row.pause_at or ()),
            "step": max(row.step, histories.saved.get(job_id, 0)),
        },
        device=resources.get("device") or "auto",
        selector=resources.get("selector") or {},
        in_container=image is not None,
        one_host=bool(resources.get("one_host")),
        step_seconds=histories.paces.get(job_id),
        failed_before=histories.failed.get(job_id),
        last_failure=last_failure,
        last_ended_at=last_ended_at,
    )


async def _ends_of_recovering(
    connection: AsyncConnection,
) -> dict[str, tuple[str, datetime | None]]:
    rows = await connection.execute(_ENDS_OF_RECOVERING)
    return {
        job_id: (f"attempt {number}: {reason}", finished)
        for job_id, number, reason, finished in rows
    }


async def _failures_of_restarted(connection: AsyncConnection) -> dict[str, Failure]:
    rows = await connection.execute(_FAILURES_OF_RESTARTED)
    return {job_id: found for job_id, stored in rows if (found := parse_failure(stored))}


async def _saved_steps(connection: AsyncConnection) -> dict[str, int]:
    """Return the newest saved step: a script may save without reporting.

    Checkpoints that an attempt neither wrote nor starts from are those of before a restore.
    """
    rows = await connection.execute(_SAVED_STEPS)
    return {
        job_id: max([saved or 0, *(name.step for name in map(parse_name, plan.resume) if name)])
        for job_id, plan, saved in rows
    }


async def _paces_of_waiting(connection: AsyncConnection) -> dict[str, float]:
    """Return the latest seconds per step of jobs that ran before."""
    paces = {}
    for job_id, metrics in await connection.execute(_METRICS_OF_WAITING):
        seconds = metrics.get("step_seconds")
        # What is no number is kept as text.
        if isinstance(seconds, int | float) and seconds > 0:
            paces[job_id] = float(seconds)
    return paces


async def _attempts(
    session: AsyncSession, undeliverable: UndeliverableAttempts
) -> tuple[AttemptFacts, ...]:
    rows = await session.execute(_ATTEMPTS)
    return tuple(
        attempt_facts(a, script=task is None, undeliverable=undeliverable) for a, task in rows
    )


def attempt_facts(
    attempt: Attempt, *, script: bool, undeliverable: UndeliverableAttempts
) -> AttemptFacts:
    reports, members = reports_of(attempt), set(attempt.allocation.node_ids)
    return AttemptFacts(
        job_id=attempt.job_id,
        number=attempt.number,
        generation=attempt.generation,
        state=AttemptState(attempt.state),
        goal=cast(Goal, attempt.goal),
        failure=parse_failure(attempt.failure),
        hosts=_hosts(attempt.allocation, reports),
        script=script,
        plans=attempt.planning,
        started_at=attempt.started_at,
        isolation_seconds=attempt.isolation_seconds,
        begun=attempt.first_step is not None,
        stepped=attempt.generation == 1 or has_stepped(attempt, attempt.generation),
        running_at=attempt.running_at,
        first_step=attempt.first_step,
        reason=attempt.reason,
        reason_code=attempt.reason_code,
        in_place=attempt.in_place,
        device=attempt.allocation.device_kind,
        regrouped_at=_last_regrouped(attempt),
        failed_before=_failed_before(attempt),
        left={n: report for n, report in reports.items() if n not in members},
        not_understood=undeliverable.why(
            FencingToken(attempt.job_id, attempt.number, attempt.generation)
        ),
    )


def _hosts(allocation: Allocation, reports: Mapping[str, HostReport]) -> tuple[HostFacts, ...]:
    return tuple(
        HostFacts(
            node_id=host.node_id,
            node_name=host.node_name,
            report=reports.get(host.node_id),
            ranks=tuple(slot.rank for slot in host.ranks),
            devices=tuple(slot.device_index for slot in host.ranks),
        )
        for host in allocation
    )


def _last_regrouped(attempt: Attempt) -> datetime | None:
    return attempt.generations[-1].time if len(attempt.generations) > 1 else attempt.running_at


def _failed_before(attempt: Attempt) -> Failure | None:
    for record in reversed(attempt.generations):
        failure = parse_failure(record.failure)
        if failure is not None and failure.cause is not Cause.NODE_LOST:
            return failure
    return None
