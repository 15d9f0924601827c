"""Plans of jobs: of the strategy where it is `auto`, and predictions of one that is named.

What is asked of a host, kept, measured and learned from.
"""

from statistics import median
from typing import Any

from pydantic import NonNegativeFloat, PositiveFloat, ValidationError
from sqlalchemy import select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.db.models import Attempt, Device, Job
from trainhall.training.spec.plan import (
    ChosenPlan,
    PlanCalibration,
    PlanDevice,
    PlanModel,
    PlanRequest,
)

CALIBRATED_FROM = 20
"""The newest measured runs on a kind of device that correct the next prediction."""
MOST_OFF = 1e6
"""Measured by predicted, or its inverse, from which a rank reports nonsense."""
LEAST_MEMORY = 2**30
"""Smaller predictions say more of the process than of the model: its memory is not learned from."""


class PlanMeasured(PlanModel):
    """Measurements of the newest attempt that ended well."""

    peak_memory_bytes: PositiveFloat | None
    """Most memory that tensors held; null on a CPU, where only the growth of the whole process is
    measured."""
    step_seconds: PositiveFloat
    steps: PositiveFloat
    communication_bytes: NonNegativeFloat | None = None
    """Bytes that rank 0 sends per step to combine gradients; null where they are not counted, as
    with other strategies than `ddp`."""
    attempt: int


class JobPlan(ChosenPlan):
    """`Job.plan`: a choice, its inputs, and how well its predictions matched the measurements."""

    attempt: int
    """The attempt that it was made for; later ones keep it."""
    asked: dict[str, Any]
    """`parallelism` of the job spec then."""
    world_size: int
    device_kind: str
    measured: PlanMeasured | None = None

    @property
    def compared(self) -> PlanMeasured | None:
        """Measurements of what it predicts: the growth of a process on a CPU is not that of its
        tensors."""
        if self.measured is None or self.device_kind == "cuda":
            return self.measured
        return self.measured.model_copy(update={"peak_memory_bytes": None})

    @property
    def error(self) -> dict[str, float | None] | None:
        """By how much what was measured lies above the prediction, as a share of it."""
        if (compared := self.compared) is None:
            return None
        measured = {name: getattr(compared, name) for name in ("peak_memory_bytes", "step_seconds")}
        return {
            name: None if value is None else value / getattr(self.prediction, name) - 1
            for name, value in measured.items()
        }

    def predicts(self, attempt: Attempt) -> bool:
        """Return whether it is of this attempt's workers: elastic jobs change them as they run."""
        return attempt.number >= self.attempt and (self.world_size, self.device_kind) == (
            attempt.world_size,
            attempt.allocation.device_kind,
        )


def is_auto(job: Job) -> bool:
    return bool(job.spec.get("parallelism", {}).get("strategy") == "auto")


def plan_of(job: Job) -> JobPlan | None:
    """Return the job's plan; None: it has none, or one of an unknown version."""
    return known_plan(job.plan)


def parse_plan(stored: dict[str, Any]) -> JobPlan:
    """Read `Job.plan`.

    Raises:
        ValidationError: it is of an unknown version.
    """
    return JobPlan.model_validate(stored)


def known_plan(stored: dict[str, Any] | None) -> JobPlan | None:
    """Read `Job.plan`; None: there is none, or one of an unknown version."""
    try:
        return parse_plan(stored) if stored is not None else None
    except ValidationError:
        return None


def must_plan(
    job: Job, world_size: int, device_kind: str, *, is_first: bool, was_lost: bool
) -> bool:
    """Return whether a host plans the next attempt of a job first.

    A named strategy is predicted once: a restart does not wait for what only informs.

    Args:
        was_lost: the attempt before ended before its host had answered.
    """
    if not is_auto(job):
        predicts = bool(job.spec.get("parallelism", {}).get("predict"))
        return predicts and (is_first or was_lost)
    return not _keeps_plan(job, world_size, device_kind)


def _keeps_plan(job: Job, world_size: int, device_kind: str) -> bool:
    """Return whether the job's next attempt uses the present plan."""
    plan = plan_of(job)
    return plan is not None and (
        (plan.world_size, plan.device_kind, plan.asked)
        == (world_size, device_kind, job.spec["parallelism"])
    )


def keep(plan: ChosenPlan, job: Job, attempt: Attempt) -> None:
    """Make a choice the job's plan from now on."""
    asked = job.spec["parallelism"]
    if plan.is_named:
        # Degrees that it leaves out follow from the workers, which an elastic job changes.
        plan = plan.model_copy(update={"parallelism": asked})
    chosen = JobPlan(
        **dict(plan),
        attempt=attempt.number,
        asked=asked,
        world_size=attempt.world_size,
        device_kind=attempt.allocation.device_kind,
    )
    job.plan, job.measured_on = chosen.model_dump(mode="json"), None


def keep_measured(job: Job, figures: object, attempt: Attempt) -> bool:
    """Add what an attempt has measured to the job's plan; False where there is nothing of use."""
    plan = plan_of(job)
    if plan is None or not isinstance(figures, dict) or not plan.predicts(attempt):
        return False
    try:
        measured = PlanMeasured.model_validate({**figures, "attempt": attempt.number})
    except ValidationError:
        return False
    job.plan = plan.model_copy(update={"measured": measured}).model_dump(mode="json")
    job.measured_on = plan.device
    return True


async def request(session: AsyncSession, attempt: Attempt, *, own_strategy: bool) -> PlanRequest:
    """Return the planning request to the first host of an attempt.

    Args:
        own_strategy: only predict the strategy that the spec names.
    """
    rows = await session.execute(
        select(Device.kind, Device.name, Device.memory_total, Device.node_id)
        .where(tuple_(Device.node_id, Device.index).in_(attempt.allocation.devices))
        .order_by(Device.node_id, Device.index)
    )
    devices = rows.all()
    first = attempt.allocation[0]
    kind = attempt.allocation.device_kind
    # Slower devices would be more to the point than the first host's, were they known as such.
    name = next((d.name for d in devices if d.node_id == first.node_id), kind)
    device = PlanDevice(
        kind=kind,
        name=name,
        memory=min((d.memory_total for d in devices), default=None),
        sharing=len(first.ranks),
    )
    return PlanRequest(
        workers=attempt.world_size,
        device=device,
        calibration=await calibration(session, name),
        own_strategy=own_strategy,
    )


async def calibration(session: AsyncSession, device: str) -> PlanCalibration:
    """Return the medians of measured by predicted over the newest runs on such devices."""
    rows = await session.scalars(
        select(Job.plan)
        .where(Job.measured_on == device)
        .order_by(Job.number.desc())
        .limit(CALIBRATED_FROM)
    )
    times, memories = [], []
    for plan in map(known_plan, rows):
        if plan is None or plan.measured is None:
            continue
        predicted, factors = plan.prediction, plan.calibration
        time = plan.measured.step_seconds / predicted.step_seconds * factors.time
        if not 1 / MOST_OFF < time < MOST_OFF:
            continue
        times.append(time)
        peak, held = predicted.peak_memory_bytes / factors.memory, plan.measured.peak_memory_bytes
        if peak >= LEAST_MEMORY and held is not None and held / peak < MOST_OFF:
            memories.append(held / peak)
    if not times:
        return PlanCalibration()
    return PlanCalibration(
        time=median(times), memory=median(memories) if memories else 1.0, runs=len(times)
    )
