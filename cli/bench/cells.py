"""The runs of a benchmark or scaling study on this host, one after the other."""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from trainhall.cli.base.errors import CliError, UsageError
from trainhall.cli.base.output import Json, notice
from trainhall.cli.bench.power import PowerMeter
from trainhall.cli.local.local import STOPPED, LocalRun, places
from trainhall.cli.local.local_plan import choose, predict
from trainhall.cluster.agent.devices import physical_cores
from trainhall.cluster.experiments.analysis.figures import (
    SERIES,
    after_warmup,
    distributions,
    speed_figures,
)
from trainhall.cluster.experiments.analysis.rows import RunRow, TrialRow, field_labels
from trainhall.cluster.experiments.analysis.text import value_text
from trainhall.cluster.experiments.benchmark.rows import benchmark_rows, cell_trials
from trainhall.cluster.experiments.runs import job_of, plan_configurations, start_order
from trainhall.cluster.experiments.scaling.analyze import scaling_curves
from trainhall.cluster.experiments.scaling.findings import curve_findings
from trainhall.cluster.experiments.spec import ExperimentSpec
from trainhall.cluster.jobs.plans import JobPlan, PlanMeasured
from trainhall.monitoring.codec import decode_frames
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.spec import JobSpec, SpecError
from trainhall.training.spec.plan import ChosenPlan

_COMPLETED = 0
_HIGHER_IS_BETTER = -1


class CellRuns:
    """Runs each combination as often as it is to be repeated.

    Attributes:
        was_interrupted: the user stopped it; what had not run is pending.
    """

    def __init__(self, spec: ExperimentSpec) -> None:
        """Plan the runs.

        Raises:
            UsageError: no combination can run.
        """
        self._spec = spec
        try:
            self._planned = {each.number: each for each in plan_configurations(spec)}
        except SpecError as error:
            raise UsageError(str(error)) from None
        self._order = start_order(spec, self._planned.values())
        self._found: dict[tuple[int, int], RunRow] = {}
        self._plans: dict[int, ChosenPlan | None] = {}
        self.was_interrupted = False

    def run(self) -> None:
        """Run all, or as many as there are before Ctrl-C."""
        possible = [key for key in self._order if not self._planned[key[0]].problem]
        for i, key in enumerate(possible, 1):
            notice(f"Run {i} of {len(possible)}: {self._describe(*key)}")
            try:
                with tempfile.TemporaryDirectory(prefix="trainhall-bench-") as folder:
                    self._found[key] = self._run(*key, Path(folder))
            except KeyboardInterrupt:
                self.was_interrupted = True
            if self.was_interrupted:
                return

    def rows(self) -> list[Json]:
        """Return the rows, one for each combination, as the analysis of an experiment has them."""
        first = next(each for each in self._planned.values() if not each.problem)
        baseline = self._spec.baseline or first.values
        spec = {
            "job": self._spec.job,
            "baseline": baseline if self._spec.kind == "benchmark" else None,
        }
        found = benchmark_rows(spec, self._trials(), _HIGHER_IS_BETTER)
        return [row.model_dump(mode="json") for row in found]

    def scaling(self) -> Json:
        """Return the curves of a scaling study and what they show; empty of a benchmark."""
        if self._spec.scaling is None:
            return {}
        found = scaling_curves(self._spec.document(), self._trials())
        return {
            "scaling": [curve.model_dump(mode="json") for curve in found],
            "findings": curve_findings(found, field_labels(self._spec.space)),
        }

    def _trials(self) -> list[TrialRow]:
        runs = [self._found.get(key) or self._not_run(*key) for key in self._order]
        return cell_trials(self._spec.job, runs)

    def _describe(self, number: int, repeat: int) -> str:
        values = self._planned[number].values
        labels = field_labels(values)
        text = ", ".join(f"{labels[field]} {value_text(value)}" for field, value in values.items())
        repeats = self._spec.repeats
        return f"{text} (repeat {repeat} of {repeats})" if repeats > 1 else text

    def _run(self, number: int, repeat: int, folder: Path) -> RunRow:
        values = self._planned[number].values
        try:
            spec, plan = self._planned_job(number, repeat, folder)
            prediction = plan.prediction if plan is not None else None
            run = LocalRun(spec, folder, resume=False, prediction=prediction)
            with PowerMeter(_gpus(spec)) as meter:
                ended = run.run()
        except CliError as error:
            return RunRow(number, repeat, values, "failed", reason=str(error))
        if ended != _COMPLETED:
            self.was_interrupted = ended == STOPPED
            return RunRow(number, repeat, values, "cancelled", reason="it was stopped")
        figures = self._figures(folder, meter)
        return RunRow(
            number, repeat, values, "completed",
            objective=figures.get("samples_per_second"), figures=figures,
            shares_cores=_shares_cores(spec),
            plan=None if plan is None else _job_plan(plan, spec, run.measured),
        )  # fmt: skip

    def _planned_job(
        self, number: int, repeat: int, folder: Path
    ) -> tuple[JobSpec, ChosenPlan | None]:
        """Return the job of a run and its plan; None, and a notice, if none can be made."""
        spec = job_of(self._spec, self._planned[number].values, number, repeat)
        if spec.is_auto:
            return choose(spec, folder)
        # One prediction holds for all repeats.
        if number not in self._plans:
            self._plans[number] = None
            try:
                self._plans[number] = predict(spec)
            except CliError as error:
                notice(f"No prediction: {error}")
        return spec, self._plans[number]

    def _not_run(self, number: int, repeat: int) -> RunRow:
        planned = self._planned[number]
        if not planned.problem:
            return RunRow(number, repeat, planned.values, "pending")
        reason = f"cannot run: {planned.problem}"
        return RunRow(number, repeat, planned.values, "failed", reason=reason, can_run=False)

    def _figures(self, folder: Path, meter: PowerMeter) -> dict[str, float | None]:
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        steps: list[dict[str, Any]] = [json.loads(line) for line in lines]
        numbers = np.array([step["step"] for step in steps], np.int64)
        kept = after_warmup(numbers, [None], self._spec.warmup_steps)
        series = {
            name: np.array([_number(step.get(name)) for step in steps])[kept] for name in SERIES
        }
        last = steps[-1] if steps else {}
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        speed = speed_figures(distributions(series))
        watts = meter.watts(*self._measured_time(folder)) if meter.gpus else None
        rate = speed.get("samples_per_second")
        return {
            **speed,
            "energy_per_sample": watts / rate if watts is not None and rate else None,
            "peak_memory_bytes": last.get("peak_memory_bytes"),
            "final_loss": last.get("loss"),
            "steps": result["steps"],
            "duration_seconds": result["seconds"],
        }

    def _measured_time(self, folder: Path) -> tuple[float, float]:
        """Return when the first step after the warm-up ended, and the last one."""
        frames = AttemptFolder(folder / "attempts" / "1").metrics(0).read_bytes()
        tables = [table for table in decode_frames(frames) if table.rank is None]
        steps = np.concatenate([table.steps for table in tables])
        times = np.concatenate([table.times for table in tables])
        kept = times[after_warmup(steps, [None], self._spec.warmup_steps)]
        return (kept.min(), kept.max()) if len(kept) else (0.0, 0.0)


def _job_plan(plan: ChosenPlan, spec: JobSpec, measured: Any) -> JobPlan:
    return JobPlan(
        **dict(plan),
        attempt=1,
        asked={},
        world_size=spec.resources.workers,
        device_kind=places(spec.resources)[0].device_kind,
        measured=measured and PlanMeasured(**measured, attempt=1),
    )


def _gpus(spec: JobSpec) -> list[int]:
    slots = places(spec.resources)
    return [slot.device_index for slot in slots if slot.device_kind == "cuda"]


def _shares_cores(spec: JobSpec) -> bool:
    slots = places(spec.resources)
    return slots[0].device_kind == "cpu" and 0 < physical_cores() < len(slots)


def _number(value: float | None) -> float:
    return np.nan if value is None else float(value)
