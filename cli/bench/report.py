"""Measurements of collectives as tables, as JSON, and as a report with plots and goals."""

import os
import platform
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

from trainhall.cli.base import output as out
from trainhall.cli.bench.measure import Measured
from trainhall.distributed.bench.request import NATIVE, SCATTERED, UNBUCKETED, Sync
from trainhall.distributed.collectives.cost import Link
from trainhall.training.common.units import percent

SMALL, LARGE = 256 << 10, 16 << 20
"""Goals of a ring of two hold up to the one, and from the other on."""
SLOW = 2e8
"""Bits a second up to which compression is to pay by its goals."""


@dataclass(frozen=True)
class Goal:
    """A figure beside what it is to be."""

    name: str
    value: float
    limit: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def __str__(self) -> str:
        sign = "≥" if self.at_least else "≤"
        return f"{self.value:.2f} (goal {sign} {self.limit:g}) {'ok' if self.met else 'MISSED'}"


def goals(measured: Sequence[Measured]) -> list[Goal]:
    """Return the goals for which there are figures."""
    return [goal for one in measured for goal in _goals(one)] + _model(measured)


def _goals(measured: Measured) -> Iterator[Goal]:
    scenario, found = measured.scenario, measured.measurements
    times = {(time.method, time.size): time for time in found.times}
    syncs = {sync.method: sync.seconds for sync in found.syncs}
    if scenario.bits_per_second is None and scenario.ranks == 2:
        for size in scenario.sizes:
            ratio = times["ring", size].by_native
            name = f"{scenario.name}: ring by native, {out.size(size)}"
            if size <= SMALL:
                yield Goal(name, ratio, 1.0)
            elif size >= LARGE:
                yield Goal(name, ratio, 1.3)
    elif scenario.bits_per_second and scenario.bits_per_second <= SLOW:
        for method, least in (("topk", 10.0), ("powersgd", 5.0)):
            name = f"{scenario.name}: {method} faster than native, ResNet-18"
            yield Goal(name, syncs[NATIVE] / syncs[method], least, at_least=True)
    elif scenario.bits_per_second:
        size = max(scenario.sizes)
        layered = times["hierarchical", size].seconds
        name = f"{scenario.name}: hierarchical faster than a ring round-robin, {out.size(size)}"
        yield Goal(name, times[SCATTERED, size].seconds / layered, 2.0, at_least=True)
        name = f"{scenario.name}: hierarchical by a ring in the order of hosts, {out.size(size)}"
        yield Goal(name, layered / times["ring", size].seconds, 1.0)


def _model(measured: Sequence[Measured]) -> list[Goal]:
    errors = [
        error
        for one in measured
        if one.scenario.bits_per_second or one.scenario.ranks == 2
        for error in one.model_errors()
    ]
    name = "cost model: median error, limited links and 2 ranks on loopback, from 1 MiB"
    return [Goal(name, statistics.median(errors), 0.25)] if errors else []


def tables(measured: Measured) -> str:
    """Draw links, each method's times by size, and the combining of a ResNet-18's gradients."""
    found = measured.measurements
    links = ", ".join(
        f"{kind}: α {_milliseconds(link.latency)}, {_megabytes(link.bandwidth)}{_one_way(link)}"
        for kind, link in found.links.items()
    )
    return "\n\n".join(
        [
            f"{measured.scenario.name}; links {links}",
            _table(_time_rows(measured)),
            _table(_sync_rows(measured)),
        ]
    )


def _table(rows: list[dict[str, Any]]) -> str:
    left = ("METHOD", "RESNET-18")
    columns = [out.Column(title, itemgetter(title), right=title not in left) for title in rows[0]]
    return out.table(rows, columns)


def _time_rows(measured: Measured) -> list[dict[str, Any]]:
    return [
        {
            "SIZE": out.size(time.size),
            "METHOD": time.method,
            "TIME": _milliseconds(time.seconds),
            "PREDICTED": _milliseconds(measured.predicted(time)),
            "BANDWIDTH": _megabytes(time.size / time.seconds),
            "BY NATIVE": f"{time.by_native:.2f}",
        }
        for time in measured.measurements.times
    ]


def _sync_rows(measured: Measured) -> list[dict[str, Any]]:
    found = measured.measurements
    by_method = {sync.method: sync for sync in found.syncs}
    native, plain = by_method[NATIVE], by_method[UNBUCKETED]
    return [
        {
            "RESNET-18": sync.method,
            "TIME": _milliseconds(sync.seconds),
            "BANDWIDTH": _megabytes(found.gradient_bytes / sync.seconds),
            "SPEED-UP": f"{native.seconds / sync.seconds:.2f}",
            "EXPOSED": _milliseconds(sync.exposed_seconds),
            "COMPRESSION": percent(sync.own_seconds / sync.seconds),
            "STEP SPEED-UP": f"{found.step_seconds(plain) / found.step_seconds(sync):.2f}",
        }
        for sync in found.syncs
    ]


def document(measured: Sequence[Measured]) -> dict[str, Any]:
    """Return it for JSON and YAML: sizes in bytes, times in seconds, bandwidths in bytes/s."""
    return {
        "scenarios": [
            asdict(one.scenario)
            | {
                "links": {str(kind): asdict(link) for kind, link in one.measurements.links.items()},
                "times": [
                    asdict(t) | {"predicted": one.predicted(t)} for t in one.measurements.times
                ],
                "syncs": [asdict(sync) for sync in one.measurements.syncs],
                "backward_seconds": one.measurements.backward_seconds,
                "gradient_bytes": one.measurements.gradient_bytes,
            }
            for one in measured
        ],
        "goals": [asdict(goal) | {"met": goal.met} for goal in goals(measured)],
    }


def write(folder: Path, measured: Sequence[Measured]) -> Path:
    """Write the report and its plots into a folder; the path of the report."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = [_head(), "## Goals\n", *(f"- {goal.name}: {goal}" for goal in goals(measured)), ""]
    for number, one in enumerate(measured):
        picture = f"{number}.png"
        _draw(folder / picture, one)
        parts += [
            f"## {one.scenario.name}\n",
            f"```text\n{tables(one)}\n```\n",
            f"![Time, bandwidth, and a ResNet-18's gradients]({picture})\n",
        ]
    report = folder / "report.md"
    report.write_text("\n".join(parts), encoding="utf-8")
    return report


def _head() -> str:
    load = os.getloadavg()[0]
    return (
        "# Collectives, measured\n\n"
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {platform.machine()} with {os.cpu_count()} "
        f"processors, load {load:.1f} at the end. All methods of a scenario take turns in one "
        "run. A time is the median over rounds of the slowest rank's time, `by native` the median "
        "ratio. Predicted times are the cost model's with links probed at the start. The "
        "gradients of a ResNet-18 go in buckets of 25 MiB; `exposed` is the wait left after a "
        "backward pass in which the processor idles, as with a GPU; `compression` is the share of "
        "time for selecting, packing and unpacking. `speed-up` compares times with `native`, `step "
        "speed-up` the backward pass and the wait after it with `unbucketed`: all gradients at "
        "once, after the backward pass.\n"
    )


def _draw(path: Path, measured: Measured) -> None:
    # Without `pyplot`, which looks for a screen.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 4.2), layout="constrained")
    panels: Any = figure.subplots(1, 3)
    by_size, bandwidth, syncs = panels
    for i, method in enumerate(measured.scenario.methods):
        times = [time for time in measured.measurements.times if time.method == method]
        sizes = [time.size for time in times]
        seconds = [time.seconds for time in times]
        guessed = [measured.predicted(time) for time in times]
        by_size.loglog(sizes, seconds, "o-", color=f"C{i}", label=method)
        by_size.loglog(sizes, guessed, "--", color=f"C{i}", alpha=0.6)
        rates = [m / s / 1e6 for m, s in zip(sizes, seconds, strict=True)]
        bandwidth.semilogx(sizes, rates, "o-", color=f"C{i}")
    by_size.set(title="time (dashed: predicted)", xlabel="bytes", ylabel="seconds")
    bandwidth.set(title="tensor's bytes by time", xlabel="bytes", ylabel="MB/s")
    by_size.legend(fontsize=8)
    _bars(syncs, measured.measurements.syncs)
    for axes in panels:
        axes.grid(visible=True, alpha=0.3)
    figure.savefig(path)


def _bars(axes: Any, syncs: Sequence[Sync]) -> None:
    places = range(len(syncs))
    axes.barh(places, [sync.seconds for sync in syncs], 0.8, label="all", color="C0", alpha=0.5)
    exposed = [max(0.0, sync.exposed_seconds) for sync in syncs]
    axes.barh(places, exposed, 0.4, label="exposed", color="C1")
    axes.set_yticks(places, [sync.method for sync in syncs])
    axes.invert_yaxis()
    axes.set(title="ResNet-18's gradients", xlabel="seconds")
    axes.legend(fontsize=8)


def _one_way(link: Link) -> str:
    return "" if link.one_way is None else f" ({_megabytes(link.one_way)} one way)"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.3g} ms" if seconds < 1 else f"{seconds * 1e3:,.0f} ms"


def _megabytes(rate: float) -> str:
    return f"{rate / 1e6:,.3g} MB/s" if rate < 1e9 else f"{rate / 1e9:,.3g} GB/s"
