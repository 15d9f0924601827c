"""Surroundings of runs whose speed is compared: other jobs, plans, cores, power of devices."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, select

from trainhall.cluster.experiments.analysis.rows import RunRow
from trainhall.cluster.jobs.plans import JobPlan, known_plan
from trainhall.cluster.lifecycle.reasons import FOREIGN_JOB
from trainhall.db.documents import Allocation
from trainhall.db.models import Attempt, DeviceReading, Job, Node
from trainhall.monitoring.devices import SECONDS

_POWER = 4
"""Place of the power among the numbers of a device, `[index, …, power]`."""


@dataclass(frozen=True)
class _Held:
    """Hosts that an attempt held, and when."""

    job_id: str
    name: str
    project: str
    start: datetime
    end: datetime
    allocation: Allocation

    def label_for(self, project: str) -> str:
        """Return the job in a sentence that members of a project read."""
        return f"{self.name} ({self.job_id})" if self.project == project else FOREIGN_JOB

    def is_beside(self, other: "_Held") -> bool:
        return self.job_id != other.job_id and self.start < other.end and other.start < self.end


def with_surroundings(
    connection: Connection, experiment_id: str, rows: Sequence[RunRow], now: datetime
) -> list[RunRow]:
    """Return runs with the other jobs on their hosts, their plans, the energy of a sample, their
    interruptions, and whether their ranks shared cores."""
    held = _held(connection, experiment_id, now)
    beside = _beside(connection, held, now)
    power = _power(connection, held)
    plans = _plans(connection, experiment_id)
    crowded = _crowded(connection, held)
    interruptions = _interruptions(connection, experiment_id)
    return [
        replace(
            row,
            shared_with=tuple(beside.get(row.job_id or "", ())),
            plan=plans.get(row.job_id or ""),
            shares_cores=row.job_id in crowded,
            interruptions=tuple(interruptions.get(row.job_id or "", ())),
            figures={**row.figures, "energy_per_sample": _energy(row, power)},
        )
        for row in rows
    ]


def _interruptions(connection: Connection, experiment_id: str) -> dict[str, list[str]]:
    """Return, by job, why its attempts that had run ended before the last one, and why ranks
    regrouped."""
    query = (
        select(Attempt.job_id, Attempt.reason, Attempt.generations, Attempt.running_at)
        .join(Job, Job.id == Attempt.job_id)
        .where(Job.experiment_id == experiment_id)
        .order_by(Attempt.job_id, Attempt.number)
    )
    found: dict[str, list[str]] = {}
    for job_id, attempts in groupby(connection.execute(query), key=attrgetter("job_id")):
        listed = list(attempts)
        for i, attempt in enumerate(listed):
            reasons = [record.reason for record in attempt.generations[1:]]
            # One whose ranks never ran was not measured.
            has_run = attempt.running_at is not None
            reasons += [attempt.reason] if has_run and i < len(listed) - 1 else []
            found.setdefault(job_id, []).extend(reasons)
    return found


def _energy(row: RunRow, power: Mapping[str, float]) -> float | None:
    watts, rate = power.get(row.job_id or ""), row.figures.get("samples_per_second")
    return watts / rate if watts is not None and rate else None


def _held(connection: Connection, experiment_id: str, now: datetime) -> list[_Held]:
    """Return the attempts of the experiment's jobs, from when their ranks were running."""
    query = (
        select(
            Attempt.job_id,
            Job.name,
            Job.project,
            Attempt.running_at,
            Attempt.finished_at,
            Attempt.allocation,
        )
        .join(Job, Job.id == Attempt.job_id)
        .where(Job.experiment_id == experiment_id, Attempt.running_at.is_not(None))
        .order_by(Attempt.job_id, Attempt.number)
    )
    return [
        _Held(
            row.job_id,
            row.name,
            row.project,
            row.running_at,
            row.finished_at or now,
            row.allocation,
        )
        for row in connection.execute(query)
    ]


def _beside(connection: Connection, held: Sequence[_Held], now: datetime) -> dict[str, list[str]]:
    """Return, by job, the names and ids of other jobs that held its hosts at the same time; those
    of other projects have none."""
    if not held:
        return {}
    query = (
        select(
            Attempt.job_id,
            Job.name,
            Job.project,
            Attempt.started_at,
            Attempt.finished_at,
            Attempt.allocation,
        )
        .join(Job, Job.id == Attempt.job_id)
        .where(
            Attempt.started_at < max(each.end for each in held),
            Attempt.finished_at.is_(None)
            | (Attempt.finished_at > min(each.start for each in held)),
        )
        .order_by(Attempt.started_at, Attempt.job_id)
    )
    by_node: dict[str, list[_Held]] = defaultdict(list)
    for row in connection.execute(query):
        other = _Held(
            row.job_id,
            row.name,
            row.project,
            row.started_at,
            row.finished_at or now,
            row.allocation,
        )
        for node_id in other.allocation.node_ids:
            by_node[node_id].append(other)
    found: dict[str, list[str]] = {}
    for run in held:
        others = {
            other.label_for(run.project): None
            for node_id in run.allocation.node_ids
            for other in by_node[node_id]
            if run.is_beside(other)
        }
        found[run.job_id] = list(dict.fromkeys([*found.get(run.job_id, ()), *others]))
    return found


def _crowded(connection: Connection, held: Sequence[_Held]) -> set[str]:
    """Return the jobs of which a host ran more ranks than it has cores, or than devices."""
    nodes = {node_id for each in held for node_id in each.allocation.node_ids}
    found = connection.execute(select(Node.id, Node.host_use).where(Node.id.in_(nodes)))
    cores = {row.id: row.host_use.get("cores", 0) for row in found}
    return {
        each.job_id
        for each in held
        if len(each.allocation.devices) < each.allocation.world_size
        or (
            each.allocation.device_kind == "cpu"
            and any(0 < cores.get(host.node_id, 0) < len(host.ranks) for host in each.allocation)
        )
    }


def _power(connection: Connection, held: Sequence[_Held]) -> dict[str, float]:
    """Return, by job, the watts of all GPUs of its last attempt; those of which a device has no
    measured power are left out."""
    with_gpus = [each for each in held if each.allocation.device_kind == "cuda"]
    if not with_gpus:
        return {}
    query = select(DeviceReading.node_id, DeviceReading.time, DeviceReading.devices).where(
        DeviceReading.node_id.in_({n for each in with_gpus for n in each.allocation.node_ids}),
        DeviceReading.time >= min(each.start for each in with_gpus),
        DeviceReading.time <= max(each.end for each in with_gpus),
    )
    readings: dict[str, list[tuple[datetime, Any]]] = defaultdict(list)
    for row in connection.execute(query):
        readings[row.node_id].append((row.time, row.devices))
    found = {each.job_id: _watts(each, readings) for each in with_gpus}
    return {job_id: watts for job_id, watts in found.items() if watts is not None}


def _watts(held: _Held, readings: Mapping[str, Sequence[tuple[datetime, Any]]]) -> float | None:
    """Return the mean power of an attempt's devices in the readings that lie wholly within it."""
    measured: dict[tuple[str, int], list[float]] = {
        device: [] for device in held.allocation.devices
    }
    first = held.start + timedelta(seconds=SECONDS)
    for node_id in held.allocation.node_ids:
        for time, devices in readings.get(node_id, ()):
            for device in devices if first <= time <= held.end else ():
                watts = measured.get((node_id, device[0]))
                if watts is not None and device[_POWER] is not None:
                    watts.append(device[_POWER])
    if not all(measured.values()):
        return None
    return sum(sum(watts) / len(watts) for watts in measured.values())


def _plans(connection: Connection, experiment_id: str) -> dict[str, JobPlan]:
    rows = connection.execute(
        select(Job.id, Job.plan).where(Job.experiment_id == experiment_id, Job.plan.is_not(None))
    )
    found = {row.id: known_plan(row.plan) for row in rows}
    return {job_id: plan for job_id, plan in found.items() if plan is not None}
