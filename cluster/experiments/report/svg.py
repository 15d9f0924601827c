"""Small charts as SVG: text without scripts, styles or links, which follows the page's colour."""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from html import escape
from itertools import pairwise

from trainhall.cluster.experiments.analysis.text import shortened
from trainhall.training.common.units import figure

WIDTH, HEIGHT = 720, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 16, 44
_ACCENT, _BEST = "#4b6fd0", "#e8590c"
_TICKS = 5
_DOUBLINGS = 13
_LABELS = 12
"""Most labels of values without an order."""
_LABEL_LENGTH = 16
_WIDE = 1000
"""Positive numbers that span this factor are drawn on a logarithmic scale."""
_BAR = 26
_LEGEND = 20
_COLORS = ("#4b6fd0", "#e8590c", "#2b8a3e", "#9c36b5", "#c92a2a", "#0c8599")
_HOLLOW = "4 4"
"""Dashes of what is not measured."""
_NAMES = 190


class Kind(Enum):
    LINEAR = auto()
    LOG = auto()
    NAMES = auto()


class Mark(Enum):
    """The look of a point."""

    FILLED = auto()
    HOLLOW = auto()
    CROSS = auto()


@dataclass(frozen=True)
class Axis:
    label: str
    kind: Kind = Kind.LINEAR
    names: tuple[str, ...] = ()
    """Names of the positions at which points lie, for `NAMES`."""


@dataclass(frozen=True)
class Bar:
    label: str
    share: float
    """From 0 to 1, as the ends of the interval."""
    interval: tuple[float, float]
    is_faint: bool


@dataclass(frozen=True)
class Point:
    x: float
    y: float
    mark: Mark


@dataclass(frozen=True)
class Curve:
    label: str
    points: Sequence[Point]
    """In the order of their x."""


class _Scale:
    """Maps numbers to pixels."""

    def __init__(
        self,
        values: Sequence[float],
        start: float,
        end: float,
        *,
        is_log: bool,
        doubles: bool = False,
    ) -> None:
        """Span the values; `doubles`: the marks of a logarithmic scale are powers of two."""
        self._is_log = is_log
        self._base = 2.0 if doubles else 10.0
        low, high = min(values), max(values)
        if low == high:
            pad = abs(low) / 10 or 1.0
            low, high = (low / 2, high * 2) if is_log else (low - pad, high + pad)
        self.low, self.high = max(low, -sys.float_info.max), min(high, sys.float_info.max)
        self._start, self._end = start, end

    def at(self, value: float) -> float:
        # Halves: the difference of two large numbers would overflow.
        low, high, here = (self._number(v) / 2 for v in (self.low, self.high, value))
        return self._start + (here - low) / (high - low) * (self._end - self._start)

    def ticks(self) -> list[float]:
        if not self._is_log:
            return _ticks(self.low, self.high)
        first, last = math.ceil(self._log(self.low)), math.floor(self._log(self.high))
        most = _TICKS if self._base == 10 else _DOUBLINGS
        stride = max(1, math.ceil((last - first + 1) / most))
        decades = [self._base**power for power in range(first, last + 1, stride)]
        return decades if len(decades) > 1 else _ticks(self.low, self.high)

    def _number(self, value: float) -> float:
        return math.log10(value) if self._is_log else value

    def _log(self, value: float) -> float:
        return math.log10(value) if self._base == 10 else math.log2(value)


def scatter(
    title: str,
    points: Sequence[tuple[float, float]],
    x: Axis,
    y_label: str,
    *,
    best: int | None = None,
    line: Sequence[float] = (),
) -> str:
    """Draw points; `best` is the position of the one that stands out, `line` has a value for each
    point in their order, drawn as steps."""
    values = [value for _, value in points]
    y_log = min(values) > 0 and max(values) / min(values) >= _WIDE
    down = _Scale(values, HEIGHT - _BOTTOM, _TOP, is_log=y_log)
    places = [place for place, _ in points]
    if x.kind is Kind.NAMES:
        places = [-0.5, len(x.names) - 0.5]
    across = _Scale(places, _LEFT, WIDTH - _RIGHT, is_log=x.kind is Kind.LOG)
    parts = [*_y_axis(down, y_label), *_x_axis(across, x)]
    if line:
        parts.append(
            _steps([(across.at(p), down.at(v)) for (p, _), v in zip(points, line, strict=True)])
        )
    # One path of dots, not an element each: a thousand points stay small.
    dots = "".join(f"M{across.at(p):.1f} {down.at(v):.1f}h0" for p, v in points)
    parts.append(
        f'<path d="{dots}" stroke="{_ACCENT}" stroke-width="6" stroke-linecap="round" '
        'stroke-opacity="0.75" fill="none"/>'
    )
    if best is not None:
        place, value = points[best]
        parts.append(
            f'<circle cx="{across.at(place):.1f}" cy="{down.at(value):.1f}" r="6" fill="none" '
            f'stroke="{_BEST}" stroke-width="2.5"/>'
        )
    return _document(title, HEIGHT, parts)


def doubling_curves(title: str, curves: Sequence[Curve], x_label: str, y_label: str) -> str:
    """Draw curves on axes whose marks double, with the line on which y equals x. A curve is dashed
    from its first hollow point on; its crosses are by themselves."""
    points = [point for curve in curves for point in curve.points]
    xs = [point.x for point in points]
    across = _Scale(xs, _LEFT, WIDTH - _RIGHT, is_log=True, doubles=True)
    ys = [*(point.y for point in points), across.low, across.high]
    down = _Scale(ys, HEIGHT - _BOTTOM, _TOP, is_log=True, doubles=True)
    ideal = [(across.at(end), down.at(end)) for end in (across.low, across.high)]
    parts = [*_y_axis(down, y_label), *_x_axis(across, Axis(x_label, Kind.LOG))]
    parts.append(_line(*ideal[0], *ideal[1], opacity=0.4))
    parts.append(_text(ideal[1][0] - 4, ideal[1][1] + 14, "ideal", "end"))
    for i, curve in enumerate(curves):
        color = _COLORS[i % len(_COLORS)]
        places = [(across.at(p.x), down.at(p.y), p.mark) for p in curve.points]
        parts += [_joined(places, color), *(_marked(*place, color) for place in places)]
        y = HEIGHT + _LEGEND * i
        parts += [_marked(_LEFT, y, Mark.FILLED, color), _text(_LEFT + 12, y + 4, curve.label)]
    return _document(title, HEIGHT + _LEGEND * len(curves), parts)


def _joined(places: Sequence[tuple[float, float, Mark]], color: str) -> str:
    """Join the points of a curve but its crosses."""
    joined = [place for place in places if place[2] is not Mark.CROSS]
    lines = ""
    for (x, y, _), (to_x, to_y, mark) in pairwise(joined):
        dashes = f' stroke-dasharray="{_HOLLOW}"' if mark is Mark.HOLLOW else ""
        lines += (
            f'<path d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}" stroke="{color}" '
            f'stroke-width="2"{dashes} fill="none"/>'
        )
    return lines


def _marked(x: float, y: float, mark: Mark, color: str) -> str:
    if mark is Mark.CROSS:
        arms = f"M{x - 4:.1f} {y - 4:.1f}l8 8M{x - 4:.1f} {y + 4:.1f}l8 -8"
        return f'<path d="{arms}" stroke="{color}" stroke-width="2" fill="none"/>'
    fill = color if mark is Mark.FILLED else "none"
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="{color}" stroke-width="2"/>'
    )


def bars(title: str, rows: Sequence[Bar]) -> str:
    """Draw shares as bars, each with its interval."""
    height = _TOP + _BAR * len(rows) + 30
    scale = _Scale([0.0, 1.0], _NAMES, WIDTH - _RIGHT - 8, is_log=False)
    bottom = _TOP + _BAR * len(rows)
    parts = []
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(_line(scale.at(tick), _TOP, scale.at(tick), bottom, opacity=0.15))
        parts.append(_text(scale.at(tick), bottom + 16, f"{100 * tick:.0f} %", "middle"))
    for i, row in enumerate(rows):
        middle = _TOP + _BAR * (i + 0.5)
        low, high = map(scale.at, row.interval)
        parts += [
            _text(_NAMES - 8, middle + 4, shortened(row.label, 28), "end"),
            f'<rect x="{scale.at(0):.1f}" y="{middle - 8:.1f}" height="16" fill="{_ACCENT}" '
            f'width="{scale.at(row.share) - scale.at(0):.1f}" '
            f'fill-opacity="{0.3 if row.is_faint else 0.85}"/>',
            _line(low, middle, high, middle, width=1.5),
            _line(low, middle - 4, low, middle + 4, width=1.5),
            _line(high, middle - 4, high, middle + 4, width=1.5),
        ]
    return _document(title, height, parts)


def _y_axis(scale: _Scale, label: str) -> list[str]:
    parts = []
    for tick in scale.ticks():
        y = scale.at(tick)
        parts.append(_line(_LEFT, y, WIDTH - _RIGHT, y, opacity=0.15))
        parts.append(_text(_LEFT - 6, y + 4, figure(tick), "end"))
    middle = (_TOP + HEIGHT - _BOTTOM) / 2
    name = escape(shortened(label, 36))
    parts.append(
        f'<text x="12" y="{middle}" text-anchor="middle" transform="rotate(-90 12 {middle})">'
        f"{name}</text>"
    )
    return parts


def _x_axis(scale: _Scale, axis: Axis) -> list[str]:
    bottom = HEIGHT - _BOTTOM
    if axis.kind is Kind.NAMES:
        stride = max(1, math.ceil(len(axis.names) / _LABELS))
        marks = [(float(i), axis.names[i]) for i in range(0, len(axis.names), stride)]
    else:
        marks = [(tick, figure(tick)) for tick in scale.ticks()]
    parts = [_line(_LEFT, bottom, WIDTH - _RIGHT, bottom, opacity=0.5)]
    for place, text in marks:
        x = scale.at(place)
        parts.append(_line(x, bottom, x, bottom + 4, opacity=0.5))
        parts.append(_text(x, bottom + 17, shortened(text, _LABEL_LENGTH), "middle"))
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    parts.append(_text(middle, HEIGHT - 8, shortened(axis.label, 60), "middle"))
    return parts


def _steps(places: Sequence[tuple[float, float]]) -> str:
    path = f"M{places[0][0]:.1f} {places[0][1]:.1f}"
    path += "".join(f"H{x:.1f}V{y:.1f}" for x, y in places[1:])
    return f'<path d="{path}" fill="none" stroke="{_BEST}" stroke-width="2"/>'


def _document(title: str, height: float, parts: Sequence[str]) -> str:
    name = escape(title)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" aria-label="{name}" '
        'font-family="system-ui, sans-serif" font-size="12" fill="currentColor" '
        f'style="max-width:100%;height:auto">{"".join(parts)}</svg>'
    )


def _line(
    x1: float, y1: float, x2: float, y2: float, *, opacity: float = 1.0, width: float = 1.0
) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="currentColor" '
        f'stroke-opacity="{opacity}" stroke-width="{width}"/>'
    )


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers from low to high, about as many as `_TICKS`."""
    raw = high / _TICKS - low / _TICKS
    if not raw > 0 or not math.isfinite(raw):
        return [low, high]
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((power * f for f in (1, 2, 5, 10) if power * f >= raw), raw)
    if not step > 0 or not math.isfinite(step) or not math.isfinite(low / step):
        return [low, high]
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)][: 4 * _TICKS] or [low, high]
