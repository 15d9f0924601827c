"""Messages to and from the planner, which chooses or predicts a job's strategy; without torch.

The planner (`PLANNER`) is a program. It reads a `PlanRequest` from standard input and writes a plan
as JSON to standard output; `chosen` in it is a `ChosenPlan`, or null where nothing fits.
"""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from trainhall.documented import Documented
from trainhall.training.spec.job import JobSpec

PLANNER = "trainhall.training.planning.planner"
EXIT_REFUSED = 3
"""Exit code if the job cannot be planned; the last line of standard error says why."""


class PlanModel(Documented, BaseModel):
    # Databases accept neither NaN nor infinity in JSON.
    model_config = ConfigDict(
        extra="ignore",
        allow_inf_nan=False,
        json_schema_serialization_defaults_required=True,
    )


class PlanCalibration(PlanModel):
    """Ratios of measured to predicted values in earlier runs on the same kind of device."""

    memory: float = 1.0
    time: float = 1.0
    runs: int = 0
    """Number of these runs."""


class PlanDevice(PlanModel):
    """Devices that a job is planned for; all of one kind."""

    kind: Literal["cpu", "cuda"]
    name: str
    memory: int | None = None
    """Bytes of the smallest device; None if no limit is known."""
    sharing: int = 1
    """CPU slots of one host that the job uses; they share its cores."""


class PlanRequest(PlanModel):
    """Request to plan a job."""

    workers: int
    device: PlanDevice
    calibration: PlanCalibration = PlanCalibration()
    own_strategy: bool = False
    """Only predict the strategy and mesh that the spec names, whether or not they fit."""


class PlanAlternative(PlanModel):
    """Strategy and mesh that was not chosen and needs less memory."""

    summary: str
    """Short form, such as `fsdp (shard 4)`."""
    peak_memory_bytes: int


class PlanPrediction(PlanModel):
    """Predicted memory, time and traffic of a job's ranks."""

    peak_memory_bytes: Annotated[int, Field(gt=0)]
    """Peak memory of the rank that needs most."""
    memory: dict[str, int]
    """The peak by kind: parameters, gradients, optimizer, activations and buffers, in bytes."""
    step_seconds: Annotated[float, Field(gt=0)]
    bubble_fraction: float = 0.0
    communication_bytes: int = 0
    """Bytes that a rank sends per step."""
    memory_limit: int | None = None
    """Memory of a device, in bytes."""
    smaller: list[PlanAlternative] = []
    """Alternatives that need the least memory, the smallest first."""


class ChosenPlan(PlanModel):
    """Strategy of a job, chosen or named by its spec, with its prediction."""

    parallelism: dict[str, Any]
    """Value for `parallelism` in the job spec."""
    summary: str
    """Short form, such as `fsdp (shard 4)`."""
    reason: str
    """Reason for the choice."""
    assumed: str
    """Assumptions about the devices for the predicted step time."""
    device: str
    """Kind of device that it was planned for."""
    prediction: PlanPrediction
    calibration: PlanCalibration = PlanCalibration()
    """Factors that the prediction was multiplied by."""
    is_named: bool = False
    """True: the job's spec names the strategy, and no other was looked for."""


class PlanningFailedError(Exception):
    """No plan was found.

    Attributes:
        lines: output of the planner before its last line.
        final: True if another try would fail in the same way.
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
    calibration: PlanCalibration | None = None,
    own_strategy: bool = False,
) -> bytes:
    """Return the input of the planner.

    Args:
        code: folder of the job's code on this host.
    """
    request = PlanRequest(
        workers=workers,
        device=device,
        calibration=calibration or PlanCalibration(),
        own_strategy=own_strategy,
    ).model_dump()
    document = spec.model_dump(mode="json", exclude_unset=True)
    return json.dumps({"spec": document, "code": code, **request}).encode()


def planner_output(returncode: int, stdout: bytes, stderr: bytes) -> dict[str, Any]:
    """Return the plan that the planner has written.

    Raises:
        PlanningFailedError: it has not.
    """
    if returncode == 0:
        made: dict[str, Any] = json.loads(stdout)
        return made
    lines = stderr.decode(errors="replace").splitlines() or ["the planner ended without output"]
    ended = "" if returncode > 0 else f" (signal {-returncode})"
    raise PlanningFailedError(lines[-1] + ended, lines=lines[:-1], final=returncode == EXIT_REFUSED)


def chosen_of(made: dict[str, Any]) -> ChosenPlan:
    """Return the choice of a plan.

    Raises:
        PlanningFailedError: nothing fits.
    """
    if made["chosen"] is None:
        raise PlanningFailedError(made["reason"])
    return ChosenPlan.model_validate(made["chosen"])
