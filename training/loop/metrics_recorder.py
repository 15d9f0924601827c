"""Collects what steps measured and writes it to the rank's spool at every step sync."""

import math
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from trainhall.training.common.step_clock import COMPRESSION, HIDDEN, PHASE_NAMES, StepClock
from trainhall.training.link.frames import MetricTable
from trainhall.training.link.spool import MetricSpool
from trainhall.training.loop.mfu import Utilization
from trainhall.training.sync.rank0_log import Rank0Log
from trainhall.training.sync.step_sync import Rows, SyncResult


@dataclass(kw_only=True)
class Recorder:
    """Holds the steps since the last step sync; losses stay tensors, so no step waits for a
    GPU."""

    rank: int
    device: torch.device
    clock: StepClock
    spool: MetricSpool
    """For what is this rank's own."""
    rank0_log: Rank0Log
    metric_names: Sequence[str]
    global_batch_size: int
    expected_bubble: float | None = None
    """The value that `bubble_fraction` is compared with; set by strategies with a pipeline."""
    utilization: Utilization | None = None
    """Set if the peak of the devices is known."""
    sending: bool = False
    """The clock knows when gradients are on their way."""
    compressing: bool = False
    """The clock also knows when they are compressed."""

    def __post_init__(self) -> None:
        self._measured = ["loss", *self.metric_names]
        self._timings = ["step_seconds", *PHASE_NAMES]
        if self.sending:
            self._timings += [HIDDEN, COMPRESSION] if self.compressing else [HIDDEN]
        self._steps: list[int] = []
        self._times: list[float] = []
        self._rates: list[float] = []
        self._norms: list[Tensor] = []
        self._values: list[Tensor] = []
        self._taken: list[Rows] = []
        """Timings that the clock gave away already."""
        self._rows: Rows = np.empty((0, 0))
        self.last: dict[str, float] = {}
        """The newest value of every job-wide series."""

    @property
    def seconds_column(self) -> int:
        """Column of `rows` with the seconds of a step."""
        return len(self._measured)

    def step(self, step: int, values: Sequence[Tensor], norm: Tensor, rate: float) -> None:
        """Note one step: this rank's means of the loss and the metrics, scalars on the device."""
        self._steps.append(step)
        self._times.append(time.time())
        self._values.extend(values)
        self._norms.append(norm)
        self._rates.append(rate)

    def rows(self) -> Rows:
        """Return this rank's numbers, [step, column].

        Columns: measured means, step seconds, seconds by phase, hidden communication, and the time
        of compression, if any. Here the host waits for the GPU.
        """
        phases, *parts = self.clock.take()
        measured = _numbers(self._values).reshape(len(self._steps), len(self._measured))
        seconds = [phases.sum(axis=1, keepdims=True), phases, np.stack(parts, axis=1)]
        self._taken.append(np.hstack(seconds)[:, : len(self._timings)])
        self._rows = np.hstack([measured, np.vstack(self._taken)])
        return self._rows

    def write(self, result: SyncResult) -> dict[str, Sequence[float]]:
        """Write the steps whose `rows` were exchanged in `result`; returns the job-wide columns."""
        writes = self.rank == 0
        if not self._steps:
            return {}
        tables = self.flush_rows(result.means, result.peak_memory_bytes, for_all=writes)
        if not writes:
            self.rank0_log.append_tables(tables)
        return tables[0].columns

    def flush_rows(self, means: Rows, peak_memory: float, *, for_all: bool) -> list[MetricTable]:
        """Write the steps of the last `rows`, of which there are some; returns the job-wide tables,
        the one of all steps first.

        Args:
            means: of `rows` over the ranks.
            for_all: write the job-wide tables as well, in one frame.
        """
        own = dict(zip(self._timings, self._rows[:, self.seconds_column :].T.tolist(), strict=True))
        own["peak_memory_bytes"] = [peak_memory_bytes(self.device)] * len(self._steps)
        tables = self._tables(self.rank, own)
        columns = dict(zip([*self._measured, *self._timings], means.T.tolist(), strict=True))
        columns["learning_rate"] = self._rates
        columns["gradient_norm"] = _numbers(self._norms).tolist()
        columns["samples_per_second"] = [
            self.global_batch_size / seconds if seconds > 0 else 0.0
            for seconds in columns["step_seconds"]
        ]
        columns["peak_memory_bytes"] = [peak_memory] * len(self._steps)
        if self.expected_bubble is not None:
            columns["bubble_fraction"] = _bubble_fraction(columns)
            columns["bubble_fraction_expected"] = [self.expected_bubble] * len(self._steps)
        if self.utilization is not None:
            columns["model_flops_utilization"] = [
                self.utilization.percent(seconds) for seconds in columns["step_seconds"]
            ]
        job_tables = self._tables(None, columns)
        for table in job_tables:
            self.last |= {name: values[-1] for name, values in table.columns.items()}
        self.spool.append([*tables, *job_tables] if for_all else tables)
        self._steps, self._times, self._rates = [], [], []
        self._norms, self._values, self._taken = [], [], []
        return job_tables

    def _tables(self, rank: int | None, columns: dict[str, Sequence[float]]) -> list[MetricTable]:
        """Return a table of all steps, then one each for values known of some steps only."""
        tables = [MetricTable(rank, self._steps, self._times, columns)]
        hidden = columns.get(HIDDEN, [])
        known = [i for i, seconds in enumerate(hidden) if not math.isnan(seconds)]
        if len(known) < len(hidden):
            del columns[HIDDEN]
            if known:
                steps, times = [self._steps[i] for i in known], [self._times[i] for i in known]
                tables.append(MetricTable(rank, steps, times, {HIDDEN: [hidden[i] for i in known]}))
        return tables

    def write_points(self, step: int, metrics: dict[str, float]) -> None:
        """Write one point of each of the job's metrics: those of an evaluation, say."""
        self.last |= metrics
        if metrics:
            columns: dict[str, Sequence[float]] = {n: [v] for n, v in metrics.items()}
            self.rank0_log.append_tables([MetricTable(None, [step], [time.time()], columns)])

    def finite(self) -> dict[str, float]:
        """Return `last` without NaN and infinity, which JSON cannot carry."""
        return {name: value for name, value in self.last.items() if math.isfinite(value)}


def peak_memory_bytes(device: torch.device) -> float:
    """Return the most memory this rank held: of tensors on a GPU, resident on a CPU."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak if sys.platform == "darwin" else peak * 1024)


def _numbers(scalars: Sequence[Tensor]) -> Rows:
    """Convert scalar tensors of one device to float64, in one transfer."""
    if not scalars:
        return np.empty(0)
    return torch.stack(list(scalars)).cpu().double().numpy()


def _bubble_fraction(columns: Mapping[str, Sequence[float]]) -> list[float]:
    """Return the share of passes through the model that ranks have waited, by step."""
    names = ("communication_seconds", "forward_seconds", "backward_seconds")
    rows = zip(*(columns[name] for name in names), strict=True)
    return [row[0] / sum(row) if sum(row) > 0 else 0.0 for row in rows]
