"""The plan of a run on this host whose strategy is `auto`: made once, and kept in its folder."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from trainhall.cli.base.errors import CliError
from trainhall.cli.base.output import notice
from trainhall.cli.local.local import places, write_json
from trainhall.cli.plan.planner import planned
from trainhall.cluster.agent.devices import cpu_slots, list_gpus
from trainhall.training.spec import JobSpec
from trainhall.training.spec.plan import (
    ChosenPlan,
    PlanDevice,
    PlanningFailedError,
    chosen_of,
)
from trainhall.training.spec.strategies import with_parallelism


class _Kept(BaseModel):
    """`plan.json` of a run."""

    asked: dict[str, Any]
    """`parallelism` of the job spec."""
    workers: int
    device_kind: str
    chosen: ChosenPlan


def predict(spec: JobSpec) -> ChosenPlan:
    """Predict the strategy that a spec names, on this host's devices.

    Raises:
        CliError: it cannot be predicted.
    """
    try:
        made = planned(spec, spec.resources.workers, _device(spec), own_strategy=True)
        return chosen_of(made)
    except PlanningFailedError as error:
        raise CliError(str(error)) from None


def choose(spec: JobSpec, output: Path) -> tuple[JobSpec, ChosenPlan]:
    """Return the spec with this host's best strategy, or the one that its run began with.

    Raises:
        CliError: it cannot be planned, or nothing fits.
    """
    workers, device = spec.resources.workers, _device(spec)
    asked = spec.parallelism.model_dump(mode="json")
    path = output / "plan.json"
    chosen = _kept(path, (asked, workers, device.kind))
    if chosen is None:
        notice("Planning: looking for the fastest strategy and mesh on these devices …")
        try:
            chosen = chosen_of(planned(spec, workers, device))
        except PlanningFailedError as error:
            raise CliError(str(error)) from None
        kept = _Kept(asked=asked, workers=workers, device_kind=device.kind, chosen=chosen)
        write_json(path, kept.model_dump(mode="json"))
        notice(f"Chosen: {chosen.reason}.")
    else:
        notice(f"Using the plan in {path}: {chosen.summary}.")
    return with_parallelism(spec, workers, chosen.parallelism), chosen


def _kept(path: Path, key: tuple[dict[str, Any], int, str]) -> ChosenPlan | None:
    """Return the plan of an earlier run of the same job on as many devices."""
    try:
        kept = _Kept.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
    return kept.chosen if (kept.asked, kept.workers, kept.device_kind) == key else None


def _device(spec: JobSpec) -> PlanDevice:
    taken = places(spec.resources)
    indices = {slot.device_index for slot in taken}
    if taken[0].device_kind == "cuda":
        infos = [gpu for gpu in list_gpus() if gpu.index in indices]
    else:
        infos = cpu_slots(len(taken))
    return PlanDevice(
        kind=taken[0].device_kind,
        name=infos[0].name,
        memory=min(info.memory_total for info in infos),
        sharing=len(taken),
    )
