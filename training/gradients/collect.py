"""Collects a job's gradients over the ranks: their norms by parameter, and histograms where asked
for."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from trainhall.distributed import breakable
from trainhall.parallelism.strategy import Strategy
from trainhall.training.gradients.capture import Gradient, GradientWatch, histogram_of, magnitudes
from trainhall.training.link.gradient_record import HISTOGRAM_BINS, MAX_GRADIENTS, GradientRecord

_DIGITS = 6
"""Significant digits of a reported norm."""


class GradientReport(GradientWatch):
    """The gradients of one step, as this rank has them.

    Args:
        request: the number of the request that it answers; 0: the spec wants it.
    """

    def __init__(self, step: int, request: int) -> None:
        super().__init__(step)
        self.request = request
        self.own: dict[str, Tensor] = {}
        """Norms of what this rank has accumulated: scalars on the device."""
        self.norms: dict[str, Tensor] = {}
        """Norms of this rank's parts of the average."""
        self.magnitudes: dict[str, Tensor] = {}
        self.copies: dict[str, int] = {}
        """The number of ranks that hold the same part."""

    def accumulated(self, gradient: Gradient) -> None:
        self.own[gradient.name] = gradient.norm

    def averaged(self, strategy: Strategy) -> None:
        found = {n: p.grad for n, p in strategy.parameters.items() if p.grad is not None}
        if not found:
            return
        self.norms = dict(zip(found, torch._foreach_norm(list(found.values())), strict=True))
        self.copies = {name: strategy.copies(name) for name in found}
        if self.request:
            self.magnitudes = {name: magnitudes(tensor) for name, tensor in found.items()}


class GradientCapture:
    """Decides which steps are captured, the same on all ranks, and puts their parts together.

    Args:
        names: of the plain model's trained parameters, in its order.
        every: steps; None: only what is asked for.
        group: of all ranks, on the host.
    """

    def __init__(self, names: Sequence[str], every: int | None, group: dist.ProcessGroup) -> None:
        self._places = {name: i for i, name in enumerate(names)}
        self._groups, self._names = folded(names, MAX_GRADIENTS)
        self._every = every
        self._group = group
        self._requested = self._captured = 0
        self.answered = 0
        """The newest request whose record was put together."""
        self._pending: GradientReport | None = None

    def resume_from(self, request: int) -> None:
        """Take requests up to this one as answered, by an earlier group."""
        self._requested = self._captured = self.answered = request

    def note_request(self, request: int) -> None:
        """Note a request that all ranks know of."""
        self._requested = max(self._requested, request)

    def watch(self, step: int) -> GradientReport | None:
        """Return the watch of this step, if it is to be captured."""
        if self._requested > self._captured:
            self._captured = self._requested
            self._pending = GradientReport(step, self._requested)
        elif self._every is not None and step % self._every == 0:
            self._pending = GradientReport(step, 0)
        return self._pending

    @property
    def due(self) -> bool:
        """A captured step was taken and is not reported yet."""
        return self._pending is not None

    def record(self) -> GradientRecord | None:
        """Combine the captured step over the ranks, if there is one; a collective then."""
        report, self._pending = self._pending, None
        if report is None:
            return None
        squares = self._by_entry(
            {name: norm.double() ** 2 / report.copies[name] for name, norm in report.norms.items()}
        )
        largest = self._by_entry({name: norm.double() ** 2 for name, norm in report.own.items()})
        # A comparison with NaN would lose it.
        largest = torch.nan_to_num(largest, nan=torch.inf, posinf=torch.inf)
        breakable.all_reduce(squares, group=self._group)
        breakable.all_reduce(largest, dist.ReduceOp.MAX, self._group)
        counts = self._counts(report) if report.request else None
        # Only now: should the exchange break off, the request is answered by another step.
        self.answered = max(self.answered, report.request)
        return GradientRecord(
            step=report.step,
            request=report.request,
            names=self._names,
            norms=_rounded(squares.sqrt()),
            largest=_rounded(largest.sqrt()),
            histograms=None if counts is None else [histogram_of(row) for row in counts.tolist()],
        )

    def _by_entry(self, values: dict[str, Tensor]) -> Tensor:
        """Return the sums of named scalars by entry of the record, in host memory; 0 if none is."""
        sums = torch.zeros(len(self._names), dtype=torch.float64)
        if values:
            entries = [self._groups[self._places[name]] for name in values]
            found = torch.stack(list(values.values())).cpu()
            sums.index_add_(0, torch.tensor(entries), found)
        return sums

    def _counts(self, report: GradientReport) -> Tensor:
        """Return counts [entry, bin] over all ranks, each element of a gradient counted once."""
        counts = torch.zeros(len(self._names), HISTOGRAM_BINS + 2, dtype=torch.float64)
        for name, mine in report.magnitudes.items():
            counts[self._groups[self._places[name]]] += mine.cpu().double() / report.copies[name]
        breakable.all_reduce(counts, group=self._group)
        return counts.round().long()


def folded(names: Sequence[str], limit: int) -> tuple[list[int], list[str]]:
    """Return the entry of each name, and the entries' names: at most `limit`, in the order of
    `names`.

    Names that are too many are cut to those of the modules around them, as deep as is possible.
    """
    parts = [name.split(".") for name in names]
    for depth in range(max(map(len, parts), default=1), 0, -1):
        cut = [".".join(part[:depth]) for part in parts]
        entries = list(dict.fromkeys(cut))
        if len(entries) <= limit:
            break
    else:
        entries = [*entries[: limit - 1], "(others)"]
    places = {name: i for i, name in enumerate(entries)}
    return [places.get(name, limit - 1) for name in cut], entries


def _rounded(values: Tensor) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in values.tolist()]
