"""Curves of `trainhall bench collectives`: time against size, and against the number of ranks."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trainhall.cli.base.output import size as size_text

if TYPE_CHECKING:
    from trainhall.cli.bench.forecast import Forecast

PANELS = 3


def draw(path: Path, forecast: "Forecast") -> None:
    """Write a picture: in the upper row a panel for each of some numbers of ranks, in the lower one
    for each of some sizes. A dot is where the fastest algorithm changes."""
    # Without `pyplot`, which looks for a screen.
    from matplotlib.figure import Figure

    ranks, sizes = _some(list(forecast.seconds)), _some(forecast.asked_sizes)
    figure = Figure(figsize=(4.4 * max(len(ranks), len(sizes)), 8), layout="constrained")
    halves: Any = figure.subfigures(2, 1)
    upper, lower = halves
    for axes, count in zip(_row(upper, len(ranks)), ranks, strict=True):
        _against_size(axes, forecast, count)
    for axes, size in zip(_row(lower, len(sizes)), sizes, strict=True):
        _against_ranks(axes, forecast, size)
    lines, names = upper.axes[0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=len(names))
    figure.savefig(path)


def _some(items: list[Any]) -> list[Any]:
    """Select at most as many as there are panels, first and last included."""
    places = np.linspace(0, len(items) - 1, min(PANELS, len(items))).round().astype(int)
    return [items[place] for place in places]


def _row(figure: Any, count: int) -> list[Any]:
    return list(figure.subplots(1, count, squeeze=False, sharey=True)[0])


def _against_size(axes: Any, forecast: "Forecast", ranks: int) -> None:
    seconds = forecast.seconds[ranks]
    for i, name in enumerate(forecast.algorithms):
        axes.loglog(forecast.sizes, seconds[name], color=f"C{i}", label=name)
    for crossover in forecast.crossovers(ranks):
        time = np.interp(crossover.size, forecast.sizes, seconds[crossover.above])
        axes.plot(crossover.size, time, "o", color="black", zorder=3)
        axes.annotate(
            size_text(round(crossover.size)), (crossover.size, time), xytext=(4, -12),
            textcoords="offset points", fontsize=8,
        )  # fmt: skip
    axes.set(title=f"{ranks:,} ranks", xlabel="bytes", ylabel="seconds")
    axes.grid(visible=True, alpha=0.3)


def _against_ranks(axes: Any, forecast: "Forecast", size: float) -> None:
    counts = list(forecast.seconds)
    place = int(np.searchsorted(forecast.sizes, size))
    table = np.array(
        [[forecast.seconds[n][name][place] for n in counts] for name in forecast.algorithms]
    )
    for i, (name, times) in enumerate(zip(forecast.algorithms, table, strict=True)):
        axes.loglog(counts, times, marker=".", color=f"C{i}", label=name)
    fastest = table.argmin(axis=0)
    changes = np.flatnonzero(np.diff(fastest)) + 1
    axes.plot(np.array(counts)[changes], table.min(axis=0)[changes], "o", color="black", zorder=3)
    axes.set_xscale("log", base=2)
    axes.set(title=size_text(round(size)), xlabel="ranks", ylabel="seconds")
    axes.grid(visible=True, alpha=0.3)
