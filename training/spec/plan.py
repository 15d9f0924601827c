"""What the planner is asked and what it answers, for jobs whose strategy is `auto`. Free of torch.

The planner is a program (`PLANNER`): a `PlanRequest` on its standard input, a plan as JSON on its
standard output, whose `chosen` is a `ChosenPlan` or null where nothing fits.
"""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from trainhall.training.spec.job import JobSpec

PLANNER = "trainhall.training.planning"
EXIT_REFUSED = 3
"""Its exit code where the job cannot be planned; the last line of its standard error says why."""


class PlanModel(BaseModel):
    # No database keeps NaN or infinity in JSON.
    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True, allow_inf_nan=False)


class Calibration(PlanModel):
    """What runs on the same kind of device have shown: measured by predicted."""

    memory: float = 1.0
    time: float = 1.0
    runs: int = 0
    """How many it was taken from."""


class PlanDevice(PlanModel):
    """The devices that a job is planned for, which are alike."""

    kind: Literal["cpu", "cuda"]
    name: str
    memory: int | None = None
    """Bytes of the smallest of them; None: no limit is known."""
    sharing: int = 1
    """CPU slots of one host that the job takes, which share its cores."""


class PlanRequest(PlanModel):
    """What a host is asked to plan."""

    workers: int
    device: PlanDevice
    calibration: Calibration = Calibration()


class Alternative(PlanModel):
    """A strategy and mesh that was not chosen, and needs less memory."""

    told: str
    """As in `fsdp (shard 4)`."""
    peak_memory_bytes: int


class Prediction(PlanModel):
    """What a job's ranks are expected to take."""

    peak_memory_bytes: Annotated[int, Field(gt=0)]
    """Of the rank that needs most."""
    memory: dict[str, int]
    """The same by kind: parameters, gradients, optimizer, activations and buffers."""
    step_seconds: Annotated[float, Field(gt=0)]
    bubble_fraction: float = 0.0
    communication_bytes: int = 0
    """That a rank sends in a step."""
    memory_limit: int | None = None
    """Bytes of a device."""
    smaller: list[Alternative] = []
    """Those that need the least, the smallest first."""


class ChosenPlan(PlanModel):
    """A plan's choice, and what follows from it."""

    parallelism: dict[str, Any]
    """What to write under `parallelism` of the job spec."""
    told: str
    """The choice in words, as in `fsdp (shard 4)`."""
    reason: str
    """Why it was chosen."""
    assumed: str
    """Of the devices, to predict the time of a step."""
    device: str
    """The kind of device that it was planned for."""
    prediction: Prediction
    calibration: Calibration = Calibration()
    """What the prediction was multiplied by."""


class PlanFailed(Exception):
    """There is no plan.

    Attributes:
        lines: what the planner said before its last line.
        final: another try would end in the same way.
    """

    def __init__(self, message: str, *, lines: list[str] | None = None, final: bool = True) -> None:
        super().__init__(message)
        self.lines = lines or []
        self.final = final


def planner_input(
    spec: JobSpec,
    workers: int,
    *,
    code: str | None,
    device: PlanDevice,
    calibration: Calibration | None = None,
) -> bytes:
    """What the planner reads.

    Args:
        code: the folder of the job's own code on this host.
    """
    request = PlanRequest(
        workers=workers, device=device, calibration=calibration or Calibration()
    ).model_dump()
    document = spec.model_dump(mode="json", exclude_unset=True)
    return json.dumps({"spec": document, "code": code, **request}).encode()


def planner_output(returncode: int, stdout: bytes, stderr: bytes) -> dict[str, Any]:
    """The plan that the planner has written.

    Raises:
        PlanFailed: it has not.
    """
    if returncode == 0:
        made: dict[str, Any] = json.loads(stdout)
        return made
    lines = stderr.decode(errors="replace").splitlines() or ["it ended without a word"]
    ended = "" if returncode > 0 else f" (signal {-returncode})"
    raise PlanFailed(lines[-1] + ended, lines=lines[:-1], final=returncode == EXIT_REFUSED)


def chosen_of(made: dict[str, Any]) -> ChosenPlan:
    """The choice of a plan.

    Raises:
        PlanFailed: nothing fits.
    """
    if made["chosen"] is None:
        raise PlanFailed(made["reason"])
    return ChosenPlan.model_validate(made["chosen"])
