"""Devices that the cluster has, for experiments that could never start."""

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.experiments.scaling_space import WORKERS
from trainhall.cluster.experiments.spec import ExperimentError, ExperimentSpec
from trainhall.db.models import Device
from trainhall.training.spec import SpecProblem


async def check_capacity(session: AsyncSession, spec: ExperimentSpec) -> None:
    """Refuse a scaling study with more workers than the hosts have devices.

    Raises:
        ExperimentError: it has; not while no host has joined.
    """
    if spec.scaling is None:
        return
    query = select(Device.kind, func.count().label("devices")).where(Device.gone.is_(False))
    found = await session.execute(query.group_by(Device.kind))
    devices = {row.kind: row.devices for row in found}
    if not devices:
        return
    kind = _kind(spec, devices)
    problems = [
        SpecProblem(f"space.{WORKERS}", _too_many(devices.get(kind, 0), kind), str(workers))
        for workers in spec.space[WORKERS].values or ()
        if workers > devices.get(kind, 0)
    ]
    if problems:
        raise ExperimentError(problems[-1:])


def _kind(spec: ExperimentSpec, devices: dict[str, int]) -> str:
    """Return the kind of devices that the job gets."""
    resources = spec.job.get("resources")
    given = resources.get("device", "auto") if isinstance(resources, dict) else "auto"
    if given != "auto":
        return str(given)
    return "cuda" if "cuda" in devices else "cpu"


def _too_many(count: int, kind: str) -> str:
    name = "GPU" if kind == "cuda" else "CPU slot"
    return (
        f"the cluster has {count} {name}{'' if count == 1 else 's'}: leave out larger numbers, "
        "which are predicted where possible, or add hosts first"
    )
