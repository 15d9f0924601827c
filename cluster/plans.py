"""The plans of jobs whose strategy is `auto`: what is asked, kept, measured and learned from.

`Job.plan` holds a `ChosenPlan` and beside it

    attempt       the one it was made for; later ones keep it
    asked         `parallelism` of the job spec then
    world_size, device_kind
    measured      null, or `{peak_memory_bytes, step_seconds, steps, attempt}` of the newest attempt
                  that ended well
"""

import math
from statistics import median
from typing import Any

from sqlalchemy import and_, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.db.models import Attempt, Device, Job
from trainhall.training.spec.plan import Calibration, ChosenPlan, PlanDevice, PlanRequest

CALIBRATED_FROM = 20
"""The newest measured runs on a kind of device that correct the next prediction."""
LEAST_MEMORY = 2**30
"""Smaller predictions say more of the process than of the model: its memory is not learned from."""


def is_auto(job: Job) -> bool:
    return bool(job.spec["parallelism"]["strategy"] == "auto")


def keeps_plan(job: Job, world_size: int, device_kind: str) -> bool:
    """Whether the job's next attempt runs with the plan that there is."""
    return job.plan is not None and (
        (job.plan["world_size"], job.plan["device_kind"], job.plan["asked"])
        == (world_size, device_kind, job.spec["parallelism"])
    )


def kept(plan: ChosenPlan, job: Job, attempt: Attempt) -> dict[str, Any]:
    """What `Job.plan` is from now on."""
    return {
        **plan.model_dump(mode="json"),
        "attempt": attempt.number,
        "asked": job.spec["parallelism"],
        "world_size": attempt.world_size,
        "device_kind": attempt.allocation[0]["ranks"][0]["device_kind"],
        "measured": None,
    }


async def request(session: AsyncSession, attempt: Attempt) -> PlanRequest:
    """What the first host of an attempt is asked to plan."""
    places = [
        (host["node_id"], rank["device_index"])
        for host in attempt.allocation
        for rank in host["ranks"]
    ]
    rows = await session.execute(
        select(Device.kind, Device.name, Device.memory_total, Device.node_id).where(
            or_(*(and_(Device.node_id == node, Device.index == index) for node, index in places))
        )
    )
    devices = rows.all()
    first = attempt.allocation[0]
    kind = first["ranks"][0]["device_kind"]
    # Slower devices would be more to the point than the first host's, were they known as such.
    name = next((d.name for d in devices if d.node_id == first["node_id"]), kind)
    device = PlanDevice(
        kind=kind,
        name=name,
        memory=min((d.memory_total for d in devices), default=None),
        sharing=len(first["ranks"]),
    )
    return PlanRequest(
        workers=attempt.world_size, device=device, calibration=await calibration(session, name)
    )


async def calibration(session: AsyncSession, device: str) -> Calibration:
    """Of the newest runs on such devices: the medians of measured by predicted."""
    rows = await session.scalars(
        select(Job.plan)
        .where(Job.measured_on == device)
        .order_by(Job.number.desc())
        .limit(CALIBRATED_FROM)
    )
    plans = [plan for plan in rows if plan is not None]
    times, memories = [], []
    for plan in plans:
        factors = Calibration.model_validate(plan["calibration"])
        predicted, found = plan["prediction"], plan["measured"]
        times.append(found["step_seconds"] / predicted["step_seconds"] * factors.time)
        peak = predicted["peak_memory_bytes"] / factors.memory
        if peak >= LEAST_MEMORY:
            memories.append(found["peak_memory_bytes"] / peak)
    if not plans:
        return Calibration()
    return Calibration(
        time=median(times), memory=median(memories) if memories else 1.0, runs=len(plans)
    )


def with_measured(plan: dict[str, Any], told: object, attempt: int) -> dict[str, Any] | None:
    """`Job.plan` with what an attempt has measured; None where it told nothing of use."""
    if not isinstance(told, dict) or attempt < plan["attempt"]:
        return None
    peak, seconds, steps = (told.get(k) for k in ("peak_memory_bytes", "step_seconds", "steps"))
    numbers = (peak, seconds, steps)
    if not all(isinstance(n, int | float) and math.isfinite(n) and n > 0 for n in numbers):
        return None
    measured = {"peak_memory_bytes": peak, "step_seconds": seconds, "steps": steps}
    return {**plan, "measured": {**measured, "attempt": attempt}}


def errors(plan: dict[str, Any]) -> dict[str, float] | None:
    """By how much what was measured lies above the prediction, as a share of it."""
    if plan["measured"] is None:
        return None
    return {
        name: plan["measured"][name] / plan["prediction"][name] - 1
        for name in ("peak_memory_bytes", "step_seconds")
    }
