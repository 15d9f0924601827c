"""Devices that the cluster has, for experiments that could never start."""

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.experiments.runs import Configuration
from trainhall.cluster.experiments.scaling_space import WORKERS
from trainhall.cluster.experiments.spec import SPEED_KINDS, ExperimentError, ExperimentSpec
from trainhall.db.models import Device
from trainhall.training.spec import SpecProblem
from trainhall.training.spec.resources import changed


async def check_capacity(
    session: AsyncSession, spec: ExperimentSpec, planned: Iterable[Configuration]
) -> None:
    """Refuse a benchmark or scaling study with more workers than the hosts have devices: its other
    runs would wait behind.

    Raises:
        ExperimentError: it has; not while no host has joined.
    """
    if spec.kind not in SPEED_KINDS:
        return
    query = select(Device.kind, func.count().label("devices")).where(Device.gone.is_(False))
    found = await session.execute(query.group_by(Device.kind))
    devices = {row.kind: row.devices for row in found}
    if not devices:
        return
    for configuration in planned:
        if configuration.problem:
            continue
        resources = _resources(spec.job, configuration.values)
        kind = _kind(resources, devices)
        workers = resources.get("workers") or resources.get("min_workers") or 1
        if workers > devices.get(kind, 0):
            varied = [field for field in (WORKERS, "resources") if field in configuration.values]
            field = f"space.{varied[0]}" if varied else f"job.{WORKERS}"
            advice = _advice(is_varied=bool(varied), is_scaling=spec.scaling is not None)
            message = f"the cluster has {_devices(devices.get(kind, 0), kind)}: {advice}"
            raise ExperimentError([SpecProblem(field, message, str(workers))])


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


def _devices(count: int, kind: str) -> str:
    name = "GPU" if kind == "cuda" else "CPU slot"
    return f"{count} {name}{'' if count == 1 else 's'}"


def _advice(*, is_varied: bool, is_scaling: bool) -> str:
    if not is_varied:
        return "give fewer workers, or add hosts first"
    predicted = " which are predicted where possible," if is_scaling else ""
    return f"leave out larger numbers,{predicted} or add hosts first"
