"""Figures of one run, from the series of its job.

The first steps of each attempt are its warm-up: kernels are chosen and compiled in them, and memory
is taken from the system. Figures leave them out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trainhall.arrays import Bools, Floats, Ints, np

SPEEDS = ("samples_per_second", "step_seconds")
SERIES = (
    *SPEEDS,
    "communication_seconds",
    "communication_hidden_seconds",
    "data_seconds",
    "model_flops_utilization",
    "tokens_per_second",
)
"""Job-wide series that the figures of runs are from whose speed is compared."""
_LATENCY = "latency_seconds"
BENCHMARK_FIGURES = (
    "samples_per_second",
    "tokens_per_second",
    "step_seconds",
    "step_seconds_p95",
    "communication_share",
    "communication_bytes",
    _LATENCY,
    "data_share",
    "peak_memory_bytes",
    "model_flops_utilization",
    "energy_per_sample",
    "final_loss",
    "steps",
    "duration_seconds",
)
"""Measured in each run whose speed is compared."""


@dataclass(frozen=True)
class Distribution:
    """The values of a series after the warm-up."""

    median: float
    p95: float
    mean: float

    @classmethod
    def of(cls, values: Floats) -> "Distribution":
        """Return the distribution of finite values, of which there is at least one."""
        median, p95 = np.quantile(values, (0.5, 0.95))
        return cls(float(median), float(p95), float(values.mean()))


def after_warmup(steps: Ints, starts: Iterable[int | None], warmup: int) -> Bools:
    """Return which steps are after the warm-up.

    Args:
        steps: ascending, at least within an attempt.
        starts: first step of each attempt; None: not known, as of a script.
    """
    kept = np.ones(len(steps), bool)
    known = {start for start in starts if start is not None} or set(steps[:1].tolist())
    for start in known:
        kept &= (steps < start) | (steps >= start + warmup)
    return kept


def distributions(series: Mapping[str, Floats]) -> dict[str, Distribution]:
    """Return the distributions of a run's series, and of the time of all communication in a step.

    Args:
        series: values of steps after the warm-up, by the names in `SERIES`.
    """
    finite = {name: values[np.isfinite(values)] for name, values in series.items()}
    exposed = finite.get("communication_seconds", np.empty(0))
    hidden = finite.get("communication_hidden_seconds", np.empty(0))
    # A pipeline measures what it hides in some steps only.
    if len(exposed) == len(hidden):
        finite[_LATENCY] = exposed + hidden
    return {name: Distribution.of(values) for name, values in finite.items() if len(values)}


def speed_figures(
    found: Mapping[str, Distribution], tokens_per_sample: int | None = None
) -> dict[str, float]:
    """Return the figures that series show; what was not measured is left out.

    Args:
        found: as from `distributions`.
    """
    medians = (*SPEEDS, "model_flops_utilization", "tokens_per_second", _LATENCY)
    figures = {name: found[name].median for name in medians if name in found}
    if (step := found.get("step_seconds")) is not None:
        figures["step_seconds_p95"] = step.p95
        for phase in ("communication", "data"):
            if f"{phase}_seconds" in found and step.mean > 0:
                figures[f"{phase}_share"] = found[f"{phase}_seconds"].mean / step.mean
    if tokens_per_sample is not None and "samples_per_second" in figures:
        rate = figures["samples_per_second"] * tokens_per_sample
        figures.setdefault("tokens_per_second", rate)
    return figures
