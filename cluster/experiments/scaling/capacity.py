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
        values = configuration.values
        kind = _kind(spec.job, values, devices)
        if not configuration.problem and values.get(WORKERS, 0) > devices.get(kind, 0):
            message = _too_many(devices.get(kind, 0), kind, is_scaling=spec.scaling is not None)
            raise ExperimentError([SpecProblem(f"space.{WORKERS}", message, str(values[WORKERS]))])


def _kind(job: Mapping[str, Any], values: Mapping[str, Any], devices: Mapping[str, int]) -> str:
    """Return the kind of devices that the job of a configuration gets."""
    resources = job.get("resources")
    given = resources.get("device", "auto") if isinstance(resources, dict) else "auto"
    given = values.get("resources.device", given)
    if given != "auto":
        return str(given)
    return "cuda" if "cuda" in devices else "cpu"


def _too_many(count: int, kind: str, *, is_scaling: bool) -> str:
    name = "GPU" if kind == "cuda" else "CPU slot"
    predicted = " which are predicted where possible," if is_scaling else ""
    return (
        f"the cluster has {count} {name}{'' if count == 1 else 's'}: leave out larger numbers,"
        f"{predicted} or add hosts first"
    )
