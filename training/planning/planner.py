"""Predicts a job under every strategy and mesh, before it runs; no device is needed.

`plan` compares all that the job spec allows. `predicted_memory` is the peak of a job as its spec
has it; the sum over its kinds is to be held against the largest `torch.cuda.max_memory_allocated`
of the ranks. Run as a program, it reads a request from standard input and writes a plan, both JSON.
"""

import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch.utils._pytree import tree_map

from trainhall.parallelism.choose import StrategyConfig
from trainhall.parallelism.data_parallel.gradient_sync import NATIVE
from trainhall.parallelism.declaration import check
from trainhall.parallelism.degrees import DEGREES, DegreesError, StrategyName
from trainhall.parallelism.plan import devices
from trainhall.parallelism.plan.devices import Rates
from trainhall.parallelism.plan.gpu_autocast import autocast_as_on_a_gpu
from trainhall.parallelism.plan.prediction import Prediction, best, predict
from trainhall.parallelism.plan.trace import Subject, TraceError, Tracing, fake_process_group
from trainhall.parallelism.strategy import NoGradientError
from trainhall.training.common.units import brief, size_text
from trainhall.training.data.batch_reader import Reader, Request
from trainhall.training.loop.model_checks import refuse_extra_state
from trainhall.training.loop.strategy_config import strategy_config_of
from trainhall.training.optim.optimizers import build_optimizer
from trainhall.training.optim.precision import MixedPrecision
from trainhall.training.process.fork_map import in_copies
from trainhall.training.process.user_traceback import UserTraceback
from trainhall.training.spec import JobSpec, Precision, SpecError
from trainhall.training.spec.parse import validate_spec
from trainhall.training.spec.plan import (
    EXIT_REFUSED,
    ChosenPlan,
    PlanAlternative,
    PlanCalibration,
    PlanDevice,
    PlanPrediction,
    PlanRequest,
)
from trainhall.training.spec.strategies import candidates, with_mesh
from trainhall.training.tasks import build_task
from trainhall.training.tasks.base import BadDataError, TaskUnavailableError
from trainhall.training.tasks.own import BadTaskError

MOST_COPIES = 4
"""Copies of a planner's process, which on a node computes beside the ranks of other jobs."""
_SAMPLES_READ = 2
_STAND_IN = "A100"
"""For a GPU whose data sheet is not known."""
_SMALLER = 3
"""Alternatives that are named to a job whose memory turns out not to be enough."""


@dataclass(frozen=True)
class Refused:
    """A strategy that the job cannot have, and why."""

    strategy: StrategyName
    mesh: dict[str, int]
    reason: str
    is_untraced: bool = False
    """A step of it cannot be taken without values."""


@dataclass(frozen=True)
class Plan:
    """All strategies of a job, the best first."""

    predictions: list[Prediction]
    choice: Prediction | None
    refused: list[Refused]
    """Refused strategies, including those that cannot be traced."""
    rates: Rates
    memory: int | None
    """Bytes of a device; None: no limit is known."""
    calibration: PlanCalibration
    is_named: bool = False
    """The spec names the strategy: it is predicted, and no other is looked for."""


def plan(
    spec: JobSpec,
    workers: int,
    rates: Rates,
    memory: int | None,
    calibration: PlanCalibration = PlanCalibration(),
    copies: int = 1,
    own_strategy: bool = False,
) -> Plan:
    """Predict a job on `workers` devices under every strategy and mesh that its spec allows.

    Args:
        own_strategy: only under those that the spec names, whatever memory they need.
        calibration: what predictions are multiplied by.
        copies: of this process that share the work, at most.

    Raises:
        TraceError: the model cannot be run without values, under any strategy and mesh.
        TaskUnavailableError, BadDataError, BadTaskError: the task cannot be built here.
    """
    with fake_process_group(workers):
        tracing = Tracing(subject_of(spec))
        refuse_extra_state(tracing.model)
        own = spec.parallelism.strategy
        meshes = [(own, {})] if own_strategy and own != "auto" else list(candidates(workers))
        predictor = _Predictor(spec, workers, tracing, rates, calibration, own_strategy)
        outcomes = in_copies(lambda n: predictor.outcome(*meshes[n]), len(meshes), copies)
        predictions = [each for each in outcomes if isinstance(each, Prediction)]
        refused = [each for each in outcomes if isinstance(each, Refused)]
        untraced = next((each for each in refused if each.is_untraced), None)
        if untraced is not None and not predictions:
            predictor.predicted(
                untraced.strategy, untraced.mesh
            )  # it raises what all have in common
    if own_strategy:
        found = arranged(predictions, refused, rates, None, calibration)
        return replace(found, memory=memory, is_named=True)
    return arranged(predictions, refused, rates, memory, calibration)


@dataclass(frozen=True)
class _Predictor:
    spec: JobSpec
    workers: int
    tracing: Tracing
    rates: Rates
    calibration: PlanCalibration
    own_strategy: bool

    def outcome(self, strategy: StrategyName, mesh: dict[str, int]) -> Prediction | Refused:
        """Return the prediction of a strategy and mesh, or why there is none."""
        try:
            return self.predicted(strategy, mesh)
        except SpecError as error:
            return Refused(strategy, mesh, "; ".join(p.message for p in error.problems))
        except (DegreesError, NoGradientError) as error:
            return Refused(strategy, mesh, str(error))
        except TraceError as error:
            return Refused(strategy, mesh, _untraced(error, self.spec), is_untraced=True)

    def predicted(self, strategy: StrategyName, mesh: dict[str, int]) -> Prediction:
        asked = self.spec
        if not self.own_strategy:
            asked = with_mesh(self.spec, self.workers, strategy, mesh)
        config = traced_of(asked)
        check(
            self.tracing.subject.declaration,
            config.degrees,
            sequence_parallel=config.sequence_parallel,
            schedule=config.schedule,
        )
        return _calibrated(predict(self.tracing, config, self.rates), self.calibration)


def arranged(
    predictions: list[Prediction],
    refused: list[Refused],
    rates: Rates,
    memory: int | None,
    calibration: PlanCalibration,
) -> Plan:
    """Return the plan for devices of so much memory, the best strategy first."""
    choice = best(predictions, memory)

    def order(prediction: Prediction) -> tuple[bool, bool, float]:
        fits = memory is None or prediction.peak <= memory
        rank = prediction.seconds if fits else prediction.peak
        return prediction is not choice, not fits, rank

    return Plan(sorted(predictions, key=order), choice, refused, rates, memory, calibration)


def _untraced(error: TraceError, spec: JobSpec) -> str:
    """Explain why one mesh was left out where others could be planned."""
    return (
        f"cannot be planned: a step on tensors without values fails{_at_user_code(error, spec)} "
        f"({error}); `trainhall run` with a few steps shows whether it trains"
    )


def _at_user_code(error: TraceError, spec: JobSpec) -> str:
    """Return the line of a task's own code where it arose, as ` at FILE, line N, in FUNCTION`."""
    assert spec.task is not None, "only a task has a model that can be planned"
    where = (
        UserTraceback(spec.task.name).location(error.__cause__ or error)
        if spec.task.is_own
        else None
    )
    return f" at {where}" if where is not None else ""


def _calibrated(prediction: Prediction, calibration: PlanCalibration) -> Prediction:
    memory = {kind: round(n * calibration.memory) for kind, n in prediction.memory.items()}
    return replace(prediction, memory=memory, seconds=prediction.seconds * calibration.time)


def predicted_memory(spec: JobSpec, kind: Literal["cpu", "cuda"] = "cpu") -> dict[str, int]:
    """Return the peak memory of the rank that needs most, by kind, of a job with the strategy it
    names.

    Args:
        kind: of its devices.
    """
    rates = Rates("", 1.0, 1.0, 1.0, 0.0, "")
    with fake_process_group(spec.resources.workers), _autocast_of(kind):
        return predict(Tracing(subject_of(spec)), traced_of(spec), rates).memory


def _autocast_of(kind: Literal["cpu", "cuda"]) -> AbstractContextManager[None]:
    return autocast_as_on_a_gpu() if kind == "cuda" else nullcontext()


def traced_of(spec: JobSpec) -> StrategyConfig:
    """Return the part of a spec's strategy that is traced: gradients are combined as torch does,
    and no layer is compiled."""
    return replace(strategy_config_of(spec), gradient_sync=NATIVE, compile=False)


def subject_of(spec: JobSpec) -> Subject:
    """Return the model of a job and how it is trained; its data give the shapes of a batch."""
    task = build_task(spec)
    training = spec.training
    data = task.train_data
    reader = Reader(task, data, training.seed)
    number = min(_SAMPLES_READ, len(data))
    example = reader.read(Request(0, torch.arange(number)))

    def enlarged(size: int) -> Callable[[Any], Any]:
        def leaf(value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or value.dim() == 0:
                return value
            if len(value) != number:
                return value
            return value[:1].expand(size, *value.shape[1:])

        return leaf

    return Subject(
        build_model=task.build_model,
        declaration=task.declaration(),
        loss=task.loss,
        batch=lambda size: tree_map(enlarged(size), example),
        optimizer=partial(build_optimizer, spec=training),
        autocast=MixedPrecision(training.precision, torch.device("cpu")).autocast,
        clip=training.gradient_clip,
        batch_size=training.global_batch_size,
        rounds=training.gradient_accumulation,
        scales=training.precision is Precision.FP16,
    )


def document(made: Plan, spec: JobSpec) -> dict[str, Any]:
    """Return a plan as JSON."""
    limit = made.memory
    return {
        "choice": None if made.choice is None else parallelism_of(made.choice),
        "chosen": None if made.choice is None else chosen(made, made.choice).model_dump(),
        "reason": reason(made),
        "assumed": assumed(made),
        "not_predicted": not_predicted(spec),
        "memory_limit": limit,
        "precision": str(spec.training.precision),
        "items": [
            {
                "strategy": p.config.strategy,
                "mesh": mesh_of(p.config),
                "microbatches": p.config.microbatches if p.config.strategy == "pipeline" else None,
                "fits": limit is None or p.peak <= limit,
                "missing_bytes": 0 if limit is None else max(0, p.peak - limit),
                "peak_memory_bytes": p.peak,
                "memory": p.memory,
                "communication_bytes": sum(p.communication.values()),
                "communication": p.communication,
                "flops": p.flops,
                "bubble_fraction": p.bubble,
                "step_seconds": p.seconds,
            }
            for p in made.predictions
        ],
        "refused": [
            {"strategy": r.strategy, "mesh": r.mesh, "reason": r.reason} for r in made.refused
        ],
    }


def chosen(made: Plan, choice: Prediction) -> ChosenPlan:
    """Return the strategy that a job runs with, and its prediction."""
    smaller = sorted((p for p in made.predictions if p.peak < choice.peak), key=lambda p: p.peak)
    return ChosenPlan(
        parallelism=parallelism_of(choice),
        summary=mesh_text(choice.config),
        reason=reason(made),
        assumed=assumed(made),
        device=made.rates.name,
        prediction=PlanPrediction(
            peak_memory_bytes=choice.peak,
            memory=choice.memory,
            step_seconds=choice.seconds,
            bubble_fraction=choice.bubble,
            communication_bytes=sum(choice.communication.values()),
            memory_limit=made.memory,
            smaller=[
                PlanAlternative(summary=mesh_text(p.config), peak_memory_bytes=p.peak)
                for p in smaller[:_SMALLER]
            ],
        ),
        calibration=made.calibration,
        is_named=made.is_named,
    )


def assumed(made: Plan) -> str:
    """Describe the assumptions about the devices."""
    factors = made.calibration
    if not factors.runs:
        return made.rates.summary
    runs = f"{factors.runs} run{'s' if factors.runs > 1 else ''}"
    return (
        f"{made.rates.summary}; of {runs} on such devices: times × {factors.time:.2f}, memory × "
        f"{factors.memory:.2f}"
    )


def not_predicted(spec: JobSpec) -> list[str]:
    """List the job's options whose effect is not predicted."""
    notes = []
    if spec.training.compile:
        notes.append(
            "training.compile: compiled layers keep less for the backward pass and take less time; "
            "both are predicted as without it, so as an upper bound"
        )
    if spec.parallelism.gradient_sync.compression != "none":
        notes.append("gradient_sync.compression: bytes and time are predicted as without it")
    return notes


def parallelism_of(prediction: Prediction) -> dict[str, Any]:
    """Return what to write under `parallelism` of a job spec."""
    config = prediction.config
    pipeline = {"microbatches": config.microbatches, "schedule": config.schedule}
    parallelism = {"strategy": config.strategy, **mesh_of(config)}
    return {**parallelism, **pipeline} if config.strategy == "pipeline" else parallelism


def mesh_of(config: StrategyConfig) -> dict[str, int]:
    """Return the degrees that the strategy has, and its servers."""
    mesh = {name: config.degrees.sizes[name] for name in DEGREES[config.strategy]}
    if config.strategy == "parameter_server":
        mesh["servers"] = config.degrees.servers
    return mesh


def mesh_text(config: StrategyConfig) -> str:
    degrees = [f"{name} {size}" for name, size in mesh_of(config).items() if size > 1]
    if config.strategy == "pipeline":
        degrees.append(f"{config.microbatches} micro-batches")
    return f"{config.strategy} ({' × '.join(degrees)})" if degrees else config.strategy


def reason(made: Plan) -> str:
    """Explain the choice."""
    if not made.predictions:
        if len(made.refused) == 1:
            return made.refused[0].reason
        return "no strategy can train this job on so many workers"
    choice, memory = made.choice, made.memory
    if choice is None:
        assert memory is not None  # without a limit everything fits
        return _nothing_fits(made.predictions, memory)
    if made.is_named:
        limit = f" of {size_text(memory)}" if memory is not None else ""
        needs = f"needs {size_text(choice.peak)}{limit}"
        return f"{mesh_text(choice.config)} takes {brief(choice.seconds)} a step and {needs}"
    fitting = [p for p in made.predictions if memory is None or p.peak <= memory]
    text = f"{mesh_text(choice.config)} {_speed(choice, fitting)}"
    if memory is None:
        return f"{text}; no memory limit is known"
    text += f", and needs {size_text(choice.peak)} of {size_text(memory)}"
    quicker = [p for p in made.predictions if p not in fitting and p.seconds < choice.seconds]
    if quicker:
        other = min(quicker, key=lambda p: p.seconds)
        missing = size_text(other.peak - memory)
        text += f"; {mesh_text(other.config)} takes {brief(other.seconds)}, but is {missing} short"
    return text


def _nothing_fits(predictions: list[Prediction], memory: int) -> str:
    least = min(predictions, key=lambda p: p.peak)
    return (
        f"nothing fits: {mesh_text(least.config)} needs the least, {size_text(least.peak)}, which "
        f"is {size_text(least.peak - memory)} more than a device has; take more workers, a smaller "
        "training.global_batch_size, or more training.gradient_accumulation"
    )


def _speed(choice: Prediction, fitting: list[Prediction]) -> str:
    """Compare the step of the choice with the shortest of those that fit."""
    quickest = min(fitting, key=lambda p: p.seconds)
    if quickest is choice:
        return f"has the shortest step, {brief(choice.seconds)}"
    return (
        "is the simplest of those whose steps are about as short "
        f"({brief(choice.seconds)}, and {brief(quickest.seconds)} under "
        f"{mesh_text(quickest.config)})"
    )


def rates_of(device: PlanDevice, *, half: bool) -> Rates:
    """Return a device's rates: by its data sheet, or, of this host's CPU, by a trial.

    A GPU without a data sheet here is taken for another, which orders strategies alike.
    """
    if device.kind == "cpu":
        return replace(devices.of_this_cpu(device.sharing, half=half), name=device.name)
    found = devices.of_gpu(device.name, half=half)
    if found is not None:
        return replace(found, name=device.name)
    stand_in = devices.of_gpu(_STAND_IN, half=half)
    assert stand_in is not None
    summary = f"no data sheet of {device.name} is known; {stand_in.summary}"
    return replace(stand_in, name=device.name, summary=summary)


def main() -> int:
    document_ = json.load(sys.stdin)
    request = PlanRequest.model_validate(document_)
    if document_["code"] is not None:
        sys.path.insert(0, document_["code"])
    try:
        spec = validate_spec(document_["spec"])
        half = spec.training.precision is not Precision.FP32
        rates = rates_of(request.device, half=half)
        # A task of a user's own may print, and standard output is the plan's alone.
        with redirect_stdout(sys.stderr), _autocast_of(request.device.kind):
            made = plan(
                spec,
                request.workers,
                rates,
                request.device.memory,
                calibration=request.calibration,
                copies=MOST_COPIES,
                own_strategy=request.own_strategy,
            )
    except TraceError as error:
        sys.stderr.write(
            "the model cannot be planned: it needs values of tensors while it runs"
            f"{_at_user_code(error, spec)} ({error}); choose a strategy, test it with a few steps "
            "of `trainhall run`, or remove what depends on values from its forward pass and "
            "its loss\n"
        )
        return EXIT_REFUSED
    except (BadTaskError, BadDataError, TaskUnavailableError) as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_REFUSED
    json.dump(document(made, spec), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
