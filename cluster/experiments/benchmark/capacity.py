"""Devices that the cluster has, for experiments that could never start."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.experiments.runs import Configuration
from trainhall.cluster.experiments.scaling_space import WORKERS
from trainhall.cluster.experiments.spec import SPEED_KINDS, ExperimentError, ExperimentSpec
from trainhall.db.models import Device, Node
from trainhall.training.spec import SpecProblem
from trainhall.training.spec.resources import changed


async def check_capacity(
    session: AsyncSession, spec: ExperimentSpec, planned: Iterable[Configuration], project: str
) -> None:
    """Refuse a benchmark or scaling study with more workers than the hosts have devices that are
    open to its project: its other runs would wait behind.

    Raises:
        ExperimentError: it has; not while no host has joined.
    """
    if spec.kind not in SPEED_KINDS:
        return
    capacity = await _capacity(session, project)
    if capacity is None:
        return
    for configuration in planned:
        if configuration.problem:
            continue
        resources = _resources(spec.job, configuration.values)
        kind = _kind(resources, capacity.devices)
        workers = resources.get("workers") or resources.get("min_workers") or 1
        if workers > capacity.devices.get(kind, 0):
            varied = [field for field in (WORKERS, "resources") if field in configuration.values]
            field = f"space.{varied[0]}" if varied else f"job.{WORKERS}"
            advice = _advice(is_varied=bool(varied), is_scaling=spec.scaling is not None)
            message = f"{capacity.describe(kind)}: {advice}"
            if not capacity.devices:
                message = "all nodes are limited to other projects: ask an admin for one"
            raise ExperimentError([SpecProblem(field, message, str(workers))])


@dataclass(frozen=True)
class _Capacity:
    """Devices that are open to a project."""

    devices: Mapping[str, int]
    """By kind."""
    is_limited: bool
    """True: other projects have nodes of their own."""

    def describe(self, kind: str) -> str:
        count = self.devices.get(kind, 0)
        name = "GPU" if kind == "cuda" else "CPU slot"
        who = "all nodes of its project have" if self.is_limited else "the cluster has"
        return f"{who} {count} {name}{'' if count == 1 else 's'}"


async def _capacity(session: AsyncSession, project: str) -> _Capacity | None:
    """Return None while no host has joined."""
    query = (
        select(Device.kind, Node.projects, func.count().label("devices"))
        .join(Node, Node.id == Device.node_id)
        .where(Device.gone.is_(False))
        .group_by(Node.id, Device.kind)
    )
    found = (await session.execute(query)).all()
    devices: Counter[str] = Counter()
    is_limited = False
    for kind, projects, count in found:
        if projects is None or project in projects:
            devices[kind] += count
        else:
            is_limited = True
    return _Capacity(devices, is_limited) if found else None


def _resources(job: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `resources` of a configuration."""
    given = values.get("resources", job.get("resources")) or {}
    varied = {
        field.removeprefix("resources."): value
        for field, value in values.items()
        if field.startswith("resources.")
    }
    return changed(given, varied)


def _kind(resources: Mapping[str, Any], devices: Mapping[str, int]) -> str:
    """Return the kind of devices that a job gets."""
    given = resources.get("device", "auto")
    if given != "auto":
        return str(given)
    return "cuda" if "cuda" in devices else "cpu"


def _advice(*, is_varied: bool, is_scaling: bool) -> str:
    if not is_varied:
        return "give fewer workers, or add hosts first"
    predicted = " which are predicted where possible," if is_scaling else ""
    return f"leave out larger numbers,{predicted} or add hosts first"
