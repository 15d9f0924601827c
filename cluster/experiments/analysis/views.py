"""Views of an analysis, as the REST API returns them."""

from typing import Any

from trainhall.cluster.experiments.analysis.comparisons import Verdict
from trainhall.db.views import JsonObject, Time, View


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
    """Mean over the repeats; null until every repeat has a value."""
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
    """Prediction of the plan that a job ran with; those of jobs with strategy `auto` have one."""

    plan: str
    """Short form, such as `fsdp (shard 4)`."""
    peak_memory_bytes: float
    measured_memory_bytes: float | None
    """Memory that the job took, counted as the plan does: on a CPU without that of the process
    before the job."""
    step_seconds: float
    communication_bytes: float
    """Bytes that a rank sends per step."""


class BenchmarkRow(AnalysisRow):
    """One cell of a benchmark, over all its repeats. Speeds leave out the warm-up."""

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
    model_flops_utilization: float | None
    """In percent; null on a CPU."""
    energy_per_sample: float | None
    """Joules of all GPUs; null where their power is not measured, or a run is shorter than about
    a minute."""
    final_loss: float | None
    predicted: Predicted | None
    shared_with: list[str]
    """Other jobs that ran on its hosts meanwhile: it may be faster alone."""
    is_baseline: bool
    ratio: float | None
    """Objective over that of the baseline; null without one."""
    ratio_interval: list[float] | None
    """95 % bootstrap interval of the ratio over the repeats; null with one run each."""
    verdict: Verdict | None
    """Against the baseline: `no_difference` if the interval has 1 in it; `too_few_runs` below 3
    repeats."""


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
    scaling: JsonObject | None
    """Reserved for scaling experiments; null."""
    device_hours: float
    """Devices times the hours that the runs held them."""
    table: list[BenchmarkRow] | list[AnalysisRow]
    """A row per trial, in their order: of a benchmark, one per cell."""
    generated_at: Time
