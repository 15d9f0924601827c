"""Runs of `trainhall verify`: a serial baseline, and every strategy beside it.

TEMPORARY/serial/            the baseline's steps (`training.verify.snapshot.Reference`)
TEMPORARY/attempts/N/        run N: its output and its differences
"""

import json
import math
import shutil
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from trainhall.cli.base.errors import CliError
from trainhall.cli.base.output import notice
from trainhall.cli.local.attempt_files import EventTail
from trainhall.cli.local.local import own_secrets, places
from trainhall.cli.local.local_shims import LocalShims
from trainhall.cluster.durations import format_duration
from trainhall.parallelism.degrees import DegreesError
from trainhall.training.link.folder import AttemptFolder, replace_json
from trainhall.training.link.launch import CheckpointPlan, Launch, TracePlan
from trainhall.training.link.secrets.attempt_secrets import write_secrets
from trainhall.training.link.status import Outcome, ShimStatus
from trainhall.training.spec import JobSpec
from trainhall.training.verify.candidates import WHOLE, Candidate, Partition, serial
from trainhall.training.verify.tolerance import KINDS, Dtype, Tolerance, tolerance

JOB_ID = "verify"
SHOWN_LINES = 20
PERTURBED: dict[Dtype, float] = {"float64": 1e-15, "float32": 5e-7}
"""By which share first weights are changed to see what a job makes of rounding: some of the last
digits, as other orders of addition do."""

Verdict = Literal["agrees", "differs", "unclear", "failed", "does not fit"]


@dataclass
class Result:
    """Comparison of a strategy with the serial baseline."""

    strategy: str
    mesh: str
    parallelism: dict[str, Any]
    verdict: Verdict
    reason: str = ""
    """Why it does not fit, failed, or is unclear."""
    baseline_microbatches: int | None = None
    """Into how many parts the baseline cut a batch."""
    errors: list[dict[str, Any]] = field(default_factory=list)
    """By step: the largest ‖a−b‖ / max(‖b‖, floor) of each kind of number."""
    first: dict[str, Any] | None = None
    """The first number that differs: its kind, step and relative error, for a tensor its name and
    layer, and how many others differ at that step."""
    first_layer: dict[str, Any] | None = None
    """The same of the first tensor: a wrong norm shows in the weights only later."""
    seconds: float = 0.0
    compared_steps: int | None = None
    """The first steps that count; None: all."""
    tolerance: str = ""
    """The tolerance in words, where it is not the common one."""

    def worst(self, kind: str) -> float | None:
        """Return the largest error of a kind over the steps that count; NaN where there is one."""
        values = [float(error[kind]) for error in self.errors[: self.compared_steps]]
        return max(values, key=lambda v: float("inf") if v != v else v, default=None)

    def as_json(self) -> dict[str, Any]:
        document = asdict(self)
        return document | {kind: self.worst(kind) for kind in KINDS}


class Comparison:
    """Runs strategies one after the other, against baselines that are made when they are needed.

    Args:
        document: of the job, from `candidates.comparable`.
    """

    def __init__(
        self, document: dict[str, Any], dtype: Dtype, folder: Path, shims: LocalShims
    ) -> None:
        self._document = document
        self._dtype = dtype
        self._folder = folder
        self._shims = shims
        self._reference = folder / "serial"
        self._attempts = 0
        self._perturbed: list[dict[str, Any]] | None = None
        """Differences of the baseline from slightly other weights, if needed."""

    def run(self, candidates: list[Candidate]) -> list[Result]:
        """Return a result for each candidate; those that do not fit are not run.

        Those that are compared with one baseline follow each other, so that one is kept at a time.

        Raises:
            CliError: a baseline fails.
        """
        results = {
            i: Result(c.strategy, c.mesh, c.parallelism, "does not fit", c.refusal)
            for i, c in enumerate(candidates) if c.spec is None
        }  # fmt: skip
        fitting = [i for i, each in enumerate(candidates) if each.spec is not None]
        if fitting:
            self._baseline(WHOLE)
        measures_batches = bool(fitting) and self._model()["batch_norm"]
        groups: dict[Partition, list[int]] = {}
        for i in fitting:
            partition = candidates[i].partition if measures_batches else WHOLE
            groups.setdefault(partition, []).append(i)
        done, number = WHOLE, 0
        for partition in sorted(groups, key=lambda p: (p.samples, p.microbatches)):
            if partition != done:
                self._baseline(partition)
                done = partition
            for i in groups[partition]:
                number += 1
                each = candidates[i]
                notice(f"[{number}/{len(fitting)}] {each.strategy}, {each.mesh} …")
                results[i] = self._compare(each, partition)
                notice(f"      {results[i].verdict} ({format_duration(results[i].seconds)})")
        return [results[i] for i in range(len(candidates))]

    def _baseline(self, partition: Partition) -> None:
        shutil.rmtree(self._reference, ignore_errors=True)
        self._perturbed = None
        parts = partition.samples * partition.microbatches
        notice("One process" + (f", with each batch in {parts} parts …" if parts > 1 else " …"))
        spec = serial(self._document, partition)
        folder, status = self._attempt(spec, record=True, parts=partition.samples)
        _check_baseline(status)
        shutil.rmtree(folder.path)

    def _disturb(self, partition: Partition) -> list[dict[str, Any]]:
        """Return the baseline's differences, by step, from slightly other first weights.

        Raises:
            CliError: it fails.
        """
        notice("One process, with initial weights that differ in their last digits …")
        folder, status = self._attempt(
            serial(self._document, partition), record=False, parts=partition.samples,
            perturbed=PERTURBED[self._dtype],
        )  # fmt: skip
        _check_baseline(status)
        steps = _read(folder)
        shutil.rmtree(folder.path)
        return steps

    def _compare(self, candidate: Candidate, partition: Partition) -> Result:
        assert candidate.spec is not None
        began = time.monotonic()
        folder, status = self._attempt(candidate.spec, record=False)
        result = Result(
            candidate.strategy,
            candidate.mesh,
            candidate.parallelism,
            "agrees",
            baseline_microbatches=partition.samples * partition.microbatches,
            seconds=round(time.monotonic() - began, 3),
        )
        compression = candidate.spec.gradient_sync.compression
        allowed = tolerance(self._dtype, compression)
        if math.isfinite(allowed.steps):
            result.compared_steps = round(allowed.steps)
            result.tolerance = (
                f"{compression} rounds gradients: only its first step is compared, with "
                f"tolerances of {allowed.loss:.0e} for the loss and {allowed.gradient:.0e} "
                "for gradients"
            )
        _classify(result, _read(folder))
        if status.outcome is not Outcome.COMPLETED:
            # Only its ranks can check a task of the user's own.
            refusal = _refusal(folder, status)
            result.verdict = "does not fit" if refusal else "failed"
            result.reason = refusal or _failure_text(status)
        elif len(result.errors) != candidate.spec.training.steps:
            result.verdict = "failed"
            result.reason = f"only {len(result.errors)} steps were compared"
        elif result.verdict == "differs":
            if self._perturbed is None:
                self._perturbed = self._disturb(partition)
            _doubt(result, self._perturbed, PERTURBED[self._dtype], allowed)
        shutil.rmtree(folder.path)
        return result

    def _attempt(
        self, spec: JobSpec, *, record: bool, parts: int = 1, perturbed: float = 0.0
    ) -> tuple[AttemptFolder, ShimStatus]:
        secrets = own_secrets(spec)
        self._attempts += 1
        folder = AttemptFolder(self._folder / "attempts" / str(self._attempts))
        folder.path.mkdir(parents=True)
        launch = Launch(
            job_id=JOB_ID,
            attempt=self._attempts,
            generation=1,
            spec=spec,
            world_size=spec.resources.workers,
            node_rank=0,
            num_nodes=1,
            ranks=places(spec.resources),
            code=spec.code_folder,
            checkpoint=CheckpointPlan(folder=str(folder.path / "checkpoints"), upload=False),
            trace=TracePlan(
                reference=str(self._reference),
                record=record,
                dtype=self._dtype,
                parts=parts,
                perturbed=perturbed,
            ),
        )
        replace_json(folder.launch, launch)
        if secrets:
            write_secrets(folder.secrets, secrets)
        return folder, self._shims.run(folder)

    def _model(self) -> dict[str, Any]:
        model: dict[str, Any] = json.loads((self._reference / "model.json").read_text())
        return model


def _check_baseline(status: ShimStatus) -> None:
    if status.outcome is not Outcome.COMPLETED:
        lines = status.failure.log_tail.splitlines()[-SHOWN_LINES:] if status.failure else []
        raise CliError(f"the serial baseline failed: {_failure_text(status)}", lines)


def _read(folder: AttemptFolder) -> list[dict[str, Any]]:
    """Return the differences of each step from the baseline."""
    if not folder.comparison.exists():
        return []
    return [json.loads(line) for line in folder.comparison.read_text().splitlines()]


def _classify(result: Result, steps: list[dict[str, Any]]) -> None:
    for step in steps:
        result.errors.append({"step": step["step"], **{kind: step[kind] for kind in KINDS}})
        if step["first"] is None:
            continue
        name = step["first"]["name"]
        first = {
            **step["first"],
            "layer": name.rpartition(".")[0] or name,
            "step": step["step"],
            "others": step["beyond"] - 1,
        }
        result.verdict = "differs"
        result.first = result.first or first
        if name:
            result.first_layer = result.first_layer or first


def _doubt(
    result: Result, perturbed: list[dict[str, Any]], share: float, allowed: Tolerance
) -> None:
    """Mark a result as unclear where one process differs from itself as early as from a strategy.

    Such a job makes any rounding grow, and a bug that showed no earlier cannot be distinguished.
    """
    assert result.first is not None
    for errors in perturbed[: result.first["step"]]:
        for kind in KINDS:
            if not errors[kind] <= allowed.of(kind, errors["step"]):
                result.verdict = "unclear"
                result.reason = (
                    "a single process also differs from itself when its initial weights "
                    f"change by {share:g} of their size: by {errors[kind]:.1e} at step "
                    f"{errors['step']} ({kind.replace('_', ' ')}). This job amplifies "
                    "rounding errors, so later differences prove nothing. A common cause is "
                    "a learning rate that is too high for the first steps: lower it, or add "
                    "a warm-up. Another is batch norm over very few values: use larger "
                    "batches or images, or fewer micro-batches"
                )
                return


def _refusal(folder: AttemptFolder, status: ShimStatus) -> str | None:
    """Return why the model does not allow a mesh, if the first failing rank reported it."""
    rank = status.failure.rank if status.failure is not None else None
    if rank is None:
        return None
    for event in EventTail(folder.events(rank)).read():
        if event.kind == "failure" and event.data["type"] == DegreesError.__name__:
            return str(event.data["message"])
    return None


def _failure_text(status: ShimStatus) -> str:
    return status.failure.message if status.failure is not None else f"it was {status.outcome}"
