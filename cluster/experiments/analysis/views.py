"""Views of an analysis, as the REST API returns them."""

from typing import Any

from trainhall.cluster.experiments.analysis.comparisons import Verdict
from trainhall.db.views import JsonObject, Time, View


class RungResult(View):
    """Objective at a rung of early stopping."""

    step: int
    """Step of the rung."""
    value: float | None
    """Null without a finite value there."""


class AnalysisRow(View):
    """One trial, over all its repeats. A figure that was not measured is null."""

    trial: int
    values: JsonObject
    """Values by the fields of the job spec that they replace."""
    state: str
    """State of a run that has not ended; else `completed`, or the state of a run that did not."""
    reason: str
    """Reason for the state, as a sentence; empty if all of its runs completed."""
    runs: int
    completed: int
    """Runs that have completed."""
    objective: float | None
    """Mean over the repeats; null until every repeat has completed with a value."""
    at_rung: RungResult | None
    """Mean over the repeats at the last rung of early stopping that all have reached, which is not
    compared with objectives; null of a trial that has one, reached no rung, or failed."""
    samples_per_second: float | None
    """Median over the steps of a run, as `step_seconds`; of several runs the mean."""
    step_seconds: float | None
    peak_memory_bytes: float | None
    steps: float | None
    duration_seconds: float | None
    """Time of its attempts."""
    spread: dict[str, list[float]]
    """Lowest and highest value of two or more runs, by the name of a column."""


class Predicted(View):
    """Prediction of the plan that a job ran with."""

    plan: str
    """Short form, such as `fsdp (shard 4)`."""
    peak_memory_bytes: float
    measured_memory_bytes: float | None
    """Most memory that tensors held; null on a CPU, where only that of whole processes is
    measured."""
    step_seconds: float
    communication_bytes: float
    """Bytes that a rank sends per step."""


class BenchmarkRow(AnalysisRow):
    """One cell of a benchmark or scaling study, over all its repeats. Speeds leave out the
    warm-up."""

    strategy: str | None
    """Null for a script, as `precision`, `batch_size` and `compression`."""
    workers: int | None
    precision: str | None
    batch_size: int | None
    """Samples per optimizer step over all ranks."""
    compression: str | None
    tokens_per_second: float | None
    """Null for a task without tokens."""
    step_seconds_p95: float | None
    """95th percentile over the steps of a run; `step_seconds` is the median."""
    communication_share: float | None
    """Part of the steps' time in which ranks wait for each other, from 0 to 1."""
    communication_bytes: float | None
    """Bytes that rank 0 sends per step to combine gradients, as the engine counts them; those of
    the backend's own collectives as of a ring. Null where they are not counted, as with other
    strategies than `ddp`."""
    latency_seconds: float | None
    """Time of communication in a step, waited for or hidden behind computation: the median over the
    steps of a run; null where hidden communication is not measured."""
    bandwidth: float | None
    """`communication_bytes` by `latency_seconds`: bytes per second."""
    speedup: float | None
    """Samples per second over those of the baseline; null without one."""
    speedup_interval: list[float] | None
    """95 % bootstrap interval of the speed-up over the repeats; null with one run each."""
    speedup_verdict: Verdict | None
    """Verdict on the speed-up, as `verdict`."""
    compares_communication: bool
    """True in the table of communication: it communicates or is the baseline, and bytes of some
    cell are counted."""
    data_share: float | None
    """Part of the steps' time in which ranks wait for data."""
    model_flops_utilization: float | None
    """In percent; null on a CPU."""
    energy_per_sample: float | None
    """Joules of all GPUs; null where their power is not measured, or a run is shorter than about
    a minute."""
    final_loss: float | None
    predicted: Predicted | None
    shared_with: list[str]
    """Other jobs that ran on its hosts meanwhile: it may be faster alone."""
    interruptions: list[str]
    """Its runs that were preempted, paused, restarted or regrouped while they were measured: why,
    and the attempts that their figures are of."""
    is_baseline: bool
    ratio: float | None
    """Objective over that of the baseline; null without one."""
    ratio_interval: list[float] | None
    """95 % bootstrap interval of the ratio over the repeats; null with one run each."""
    verdict: Verdict | None
    """Against the baseline: `no_difference` if the interval has 1 in it; `too_few_runs` below 3
    repeats."""


class ScalingPoint(View):
    """A number of workers, measured or predicted. A figure that is not known is null."""

    workers: int
    trial: int | None
    """Null of a predicted one."""
    is_predicted: bool
    shares_cores: bool
    """A host ran more ranks than it has cores or devices: left out of all that is fitted."""
    batch_size: int | None
    """Samples per optimizer step over all ranks; null for a script."""
    speed: float
    """Objective: the mean over the repeats."""
    speedup: float
    """Speed over that of the fewest workers, times their number."""
    speedup_interval: list[float] | None
    """95 % bootstrap interval over the repeats, to each of which a predicted one is fitted by
    itself; null with one run each."""
    efficiency: float
    """Speed-up by worker; 1 is ideal."""
    compute_seconds: float | None
    """Part of the time of a step, as the next two."""
    data_seconds: float | None
    """Time in which ranks wait for data."""
    communication_seconds: float | None
    """Time in which ranks wait for each other."""


class SerialShare(View):
    """Share of the work of one worker that more workers do not speed up."""

    share: float
    """From 0 to 1; by Amdahl's law for strong scaling, by Gustafson's for weak scaling."""
    interval: list[float] | None
    """95 % bootstrap interval over the repeats; null with one run each."""
    fitted_on: list[int]
    """Numbers of workers."""


class WorthwhileWorkers(View):
    """Number of workers up to which more of them pay: efficiency is at least 50 %, and twice as
    many workers are at least 10 % faster."""

    workers: int
    is_predicted: bool
    """True if the number, or the end that was found, is a predicted point."""
    reason: str
    """Why it ends there, as part of a sentence; empty: no end was found."""


class ScalingModel(View):
    """Model that the predictions are from, fitted without the largest measured point."""

    fitted_on: list[int]
    """Numbers of workers."""
    validated_on: int
    """Number of workers of the largest measured point."""
    error: float
    """Predicted over measured speed there, minus 1."""


class ScalingCurve(View):
    """Points of strong or weak scaling with the same other values."""

    scaling: str
    """`strong` or `weak`."""
    values: JsonObject
    """Values of the other fields that vary."""
    points: list[ScalingPoint]
    """By number of workers; a measured one before a predicted one."""
    serial_share: SerialShare | None
    worthwhile: WorthwhileWorkers | None
    model: ScalingModel | None
    note: str
    """Reason why nothing is fitted or predicted; else empty."""


class AnalysisBest(View):
    """The best trial. It was chosen by this value, which another run may not reach."""

    trial: int
    job_id: str | None
    """Job of its best repeat; null if it was deleted."""
    value: float
    """Objective: the mean over the repeats."""
    interval: list[float] | None
    """95 % bootstrap interval of the value over the repeats; null with one run."""
    runs: int
    values: JsonObject
    """Values by the fields of the job spec that they replace."""


class Comparison(View):
    """The best trial against another one."""

    trial: int
    """Number of the best trial."""
    other: int
    """Number of the other one."""
    field: str | None
    """The other one is the best with its value of this field; null: it is the runner-up."""
    value: Any
    """Value of that field; null for the runner-up."""
    difference: float
    """Objective of the best minus that of the other one."""
    interval: list[float] | None
    """95 % bootstrap interval of the difference over the repeats; null with one run each."""
    verdict: Verdict
    """`better` if the interval excludes 0; `too_few_runs` below 3 repeats."""
    text: str


class FieldImportance(View):
    """Importance of a field for reaching a good objective."""

    field: str
    share: float
    """Part of the importance of all fields, from 0 to 1."""
    interval: list[float]
    """95 % bootstrap interval of the share over the trials."""
    has_effect: bool
    """Passes a permutation test at 5 % over all fields; false means that none is shown."""


class ImportanceOfFields(View):
    """Importance of the varied fields, by PED-ANOVA over the trials that have an objective or
    were stopped early."""

    fields: list[FieldImportance]
    """The most important first; empty if it cannot be estimated."""
    note: str
    """Reason why there are none, or what is left out; else empty."""


class Analysis(View):
    """Findings about an experiment, from the runs that have ended so far."""

    experiment_id: str
    name: str
    state: str
    is_final: bool
    """All runs have ended: nothing changes any more."""
    runs: int
    ended: int
    """Runs that have ended."""
    metric: str
    """The objective."""
    goal: str
    """`min` or `max`."""
    findings: list[str]
    """Short sentences, the most important first."""
    best: AnalysisBest | None
    """Null until a trial has completed with a value for every repeat."""
    comparisons: list[Comparison]
    """The best trial against the runner-up, then against the best of each other value of the
    fields that are not numeric."""
    importance: ImportanceOfFields
    scaling: list[ScalingCurve] | None
    """Null of other kinds than `scaling`."""
    device_hours: float
    """Devices times the hours that the runs held them."""
    table: list[BenchmarkRow] | list[AnalysisRow]
    """A row per trial, in their order: of a benchmark or scaling study, one per cell."""
    generated_at: Time
