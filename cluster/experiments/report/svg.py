"""Small charts as SVG: text without scripts, styles or links, which follows the page's colour."""

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from html import escape
from itertools import pairwise

from trainhall.cluster.experiments.analysis.text import shortened
from trainhall.training.common.units import figure

_HEIGHT = 280
_RIGHT, _TOP, _BOTTOM = 16, 16, 44
_LEFT, _LABEL = 40, 30
"""Least space at the left of a plot, and that of the name of its vertical axis."""
_INSET = 8
"""Space between points and axes."""
_LETTER = 6.8
"""Width of a letter or digit, at most."""
_ACCENT, _BEST = "#4b6fd0", "#e8590c"
_TICKS = 5
_WIDE = 1000
"""Positive numbers that span this factor are drawn on a logarithmic scale."""
_BAR = 26
_LEGEND = 20
_COLORS = ("#4b6fd0", "#e8590c", "#2b8a3e", "#9c36b5", "#c92a2a", "#0c8599")
_HOLLOW = "4 4"
"""Dashes of what is not measured."""


class Width(Enum):
    """Width of a chart, in units that are about pixels: so its text stays legible."""

    WIDE = 720
    NARROW = 360
    """For a phone."""

    @property
    def end(self) -> int:
        """Right end of the plot."""
        return self.value - _RIGHT

    @property
    def names(self) -> int:
        """Space for the names of bars."""
        return 190 if self is Width.WIDE else 116

    @property
    def labels(self) -> int:
        """Most labels of values without an order."""
        return 12 if self is Width.WIDE else 4

    @property
    def label_length(self) -> int:
        return 16 if self is Width.WIDE else 9

    @property
    def doublings(self) -> int:
        """Most marks of an axis that doubles."""
        return 13 if self is Width.WIDE else 7


class Kind(Enum):
    LINEAR = auto()
    LOG = auto()
    NAMES = auto()


class Mark(Enum):
    """The look of a point."""

    FILLED = auto()
    HOLLOW = auto()
    CROSS = auto()
    TRIANGLE = auto()


@dataclass(frozen=True)
class Axis:
    label: str
    kind: Kind = Kind.LINEAR
    names: tuple[str, ...] = ()
    """Names of the positions at which points lie, for `NAMES`."""
    is_whole: bool = False
    """Its values are whole numbers, such as counts."""


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
        is_whole: bool = False,
        doublings: int | None = None,
    ) -> None:
        """Span the values.

        Args:
            is_whole: the marks are whole numbers.
            doublings: most marks of a logarithmic scale, which are then powers of two.
        """
        self._is_log = is_log
        self._is_whole = is_whole
        self._doublings = doublings
        low, high = min(values), max(values)
        if low == high:
            # 1 is nothing to a seed of 64 bits.
            pad = max(1.0, abs(low) / 1e9) if is_whole else abs(low) / 10 or 1.0
            low, high = (low / 2, high * 2) if is_log else (low - pad, high + pad)
        self.low, self.high = max(low, -sys.float_info.max), min(high, sys.float_info.max)
        self._start, self._end = start, end

    def at(self, value: float) -> float:
        # Halves: the difference of two large numbers would overflow.
        low, high, here = (self._number(v) / 2 for v in (self.low, self.high, value))
        return self._start + (here - low) / (high - low) * (self._end - self._start)

    def ticks(self) -> list[float]:
        if not self._is_log:
            return self._round()
        first, last = math.ceil(self._log(self.low)), math.floor(self._log(self.high))
        most = self._doublings or _TICKS
        stride = max(1, math.ceil((last - first + 1) / most))
        powers = [self._base**power for power in range(first, last + 1, stride)]
        return powers if len(powers) > 1 else self._round()

    def _round(self) -> list[float]:
        return _ticks(self.low, self.high, least=1.0 if self._is_whole else 0.0)

    @property
    def _base(self) -> float:
        return 10.0 if self._doublings is None else 2.0

    def _number(self, value: float) -> float:
        return math.log10(value) if self._is_log else value

    def _log(self, value: float) -> float:
        return math.log10(value) if self._doublings is None else math.log2(value)


def scatter(
    title: str,
    points: Sequence[Point],
    x: Axis,
    y_label: str,
    *,
    width: Width = Width.WIDE,
    best: int | None = None,
    line: Sequence[tuple[float, float]] = (),
    legend: Sequence[tuple[Mark, str]] = (),
) -> str:
    """Draw points.

    Args:
        best: position of the one that stands out.
        line: places that are joined by steps.
        legend: names of the marks.
    """
    values = [point.y for point in points]
    y_log = min(values) > 0 and max(values) / min(values) >= _WIDE
    down = _Scale(values, _HEIGHT - _BOTTOM - _INSET, _TOP, is_log=y_log)
    places = [point.x for point in points]
    if x.kind is Kind.NAMES:
        places = [-0.5, len(x.names) - 0.5]
    left = _left(down)
    is_log = x.kind is Kind.LOG
    begin, end = left + _INSET, width.end - _INSET
    across = _Scale(places, begin, end, is_log=is_log, is_whole=x.is_whole)
    parts = [*_y_axis(down, y_label, left, width), *_x_axis(across, x, left, width)]
    if line:
        parts.append(_steps([(across.at(place), down.at(value)) for place, value in line]))
    for mark in Mark:
        placed = [(across.at(p.x), down.at(p.y)) for p in points if p.mark is mark]
        if placed:
            parts.append(_marked(placed, mark, _ACCENT))
    if best is not None:
        place, value = across.at(points[best].x), down.at(points[best].y)
        parts.append(
            f'<circle cx="{place:.1f}" cy="{value:.1f}" r="6" fill="none" '
            f'stroke="{_BEST}" stroke-width="2.5"/>'
        )
    named = [(mark, _ACCENT, name) for mark, name in legend]
    return _document(title, width, _HEIGHT, parts, named)


def doubling_curves(
    title: str,
    curves: Sequence[Curve],
    x_label: str,
    y_label: str,
    *,
    width: Width = Width.WIDE,
    legend: Sequence[tuple[Mark, str]] = (),
) -> str:
    """Draw curves on axes whose marks double, with the line on which y equals x. A curve is dashed
    from its first hollow point on; its crosses are by themselves.

    Args:
        legend: names of the marks, beside those of the curves.
    """
    points = [point for curve in curves for point in curve.points]
    xs = [point.x for point in points]
    span = _Scale(xs, 0, 1, is_log=True)
    ys = [*(point.y for point in points), span.low, span.high]
    most = width.doublings
    down = _Scale(ys, _HEIGHT - _BOTTOM, _TOP, is_log=True, doublings=Width.WIDE.doublings)
    left = _left(down)
    across = _Scale(xs, left, width.end, is_log=True, is_whole=True, doublings=most)
    ideal = [(across.at(end), down.at(end)) for end in (across.low, across.high)]
    axis = Axis(x_label, Kind.LOG)
    parts = [*_y_axis(down, y_label, left, width), *_x_axis(across, axis, left, width)]
    parts.append(_line(*ideal[0], *ideal[1], opacity=0.4))
    parts.append(_text(ideal[1][0] - 4, ideal[1][1] + 14, "ideal", "end"))
    named = []
    for i, curve in enumerate(curves):
        color = _COLORS[i % len(_COLORS)]
        places = [(across.at(p.x), down.at(p.y), p.mark) for p in curve.points]
        parts.append(_joined(places, color))
        parts += [_marked([(x, y)], mark, color) for x, y, mark in places]
        named.append((Mark.FILLED, color, curve.label))
    named += [(mark, "currentColor", name) for mark, name in legend]
    return _document(title, width, _HEIGHT, parts, named)


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


def _marked(places: Iterable[tuple[float, float]], mark: Mark, color: str) -> str:
    """Mark places by one path, not by an element each: a thousand points stay small."""
    path = "".join(f"M{x:.1f} {y:.1f}{_OUTLINES[mark]}" for x, y in places)
    if mark is Mark.FILLED:
        look = 'stroke-width="7" stroke-linecap="round" stroke-opacity="0.75"'
    else:
        look = 'stroke-width="1.8"'
    return f'<path d="{path}" stroke="{color}" {look} fill="none"/>'


_OUTLINES = {
    Mark.FILLED: "h0",
    Mark.HOLLOW: "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0",
    Mark.CROSS: "m-3.5 -3.5l7 7m0 -7l-7 7",
    Mark.TRIANGLE: "m0 -4.5l4.5 8h-9z",
}
"""Paths of the marks, from the middle of each."""


def bars(title: str, rows: Sequence[Bar], *, width: Width = Width.WIDE) -> str:
    """Draw shares as bars, each with its interval."""
    height = _TOP + _BAR * len(rows) + 30
    scale = _Scale([0.0, 1.0], width.names, width.end - 8, is_log=False)
    bottom = _TOP + _BAR * len(rows)
    letters = int((width.names - 8) / _LETTER)
    parts = []
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(_line(scale.at(tick), _TOP, scale.at(tick), bottom, opacity=0.15))
        parts.append(_text(scale.at(tick), bottom + 16, f"{100 * tick:.0f} %", "middle"))
    for i, row in enumerate(rows):
        middle = _TOP + _BAR * (i + 0.5)
        low, high = map(scale.at, row.interval)
        parts += [
            _text(width.names - 8, middle + 4, shortened(row.label, letters), "end"),
            f'<rect x="{scale.at(0):.1f}" y="{middle - 8:.1f}" height="16" fill="{_ACCENT}" '
            f'width="{scale.at(row.share) - scale.at(0):.1f}" '
            f'fill-opacity="{0.3 if row.is_faint else 0.85}"/>',
            _line(low, middle, high, middle, width=1.5),
            _line(low, middle - 4, low, middle + 4, width=1.5),
            _line(high, middle - 4, high, middle + 4, width=1.5),
        ]
    return _document(title, width, height, parts)


def _left(scale: _Scale) -> float:
    """Return the left end of a plot, with room for the marks of its vertical scale."""
    longest = max(len(figure(tick)) for tick in scale.ticks())
    return max(_LEFT, _LABEL + longest * _LETTER)


def _y_axis(scale: _Scale, label: str, left: float, width: Width) -> list[str]:
    parts = []
    for tick in scale.ticks():
        y = scale.at(tick)
        parts.append(_line(left, y, width.end, y, opacity=0.15))
        parts.append(_text(left - 6, y + 4, figure(tick), "end"))
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    name = escape(shortened(label, 36))
    parts.append(
        f'<text x="12" y="{middle}" text-anchor="middle" transform="rotate(-90 12 {middle})">'
        f"{name}</text>"
    )
    return parts


def _x_axis(scale: _Scale, axis: Axis, left: float, width: Width) -> list[str]:
    bottom = _HEIGHT - _BOTTOM
    if axis.kind is Kind.NAMES:
        stride = max(1, math.ceil(len(axis.names) / width.labels))
        marks = [(float(i), axis.names[i]) for i in range(0, len(axis.names), stride)]
    else:
        marks = [(tick, figure(tick)) for tick in scale.ticks()]
    parts = [_line(left, bottom, width.end, bottom, opacity=0.5)]
    for place, text in marks:
        x = scale.at(place)
        parts.append(_line(x, bottom, x, bottom + 4, opacity=0.5))
        parts.append(_text(x, bottom + 17, shortened(text, width.label_length), "middle"))
    middle = (left + width.end) / 2
    parts.append(_text(middle, _HEIGHT - 8, shortened(axis.label, 40), "middle"))
    return parts


def _steps(places: Sequence[tuple[float, float]]) -> str:
    path = f"M{places[0][0]:.1f} {places[0][1]:.1f}"
    path += "".join(f"H{x:.1f}V{y:.1f}" for x, y in places[1:])
    return f'<path d="{path}" fill="none" stroke="{_BEST}" stroke-width="2"/>'


def _document(
    title: str,
    width: Width,
    height: float,
    parts: Sequence[str],
    legend: Sequence[tuple[Mark, str, str]] = (),
) -> str:
    """
    Args:
        legend: mark, colour and name of what is drawn, below it.
    """
    below, height = _legend(legend, width, height)
    name = escape(title)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width.value} {height:g}" '
        f'width="{width.value}" height="{height:g}" role="img" aria-label="{name}" '
        'font-family="system-ui, sans-serif" font-size="12" fill="currentColor" '
        f'style="max-width:100%;height:auto">{"".join([*parts, *below])}</svg>'
    )


def _legend(
    entries: Sequence[tuple[Mark, str, str]], width: Width, top: float
) -> tuple[list[str], float]:
    """Return marks with their names, side by side in as many lines as they need, and their end."""
    parts: list[str] = []
    x, y = float(_LEFT), top + 4
    most = int((width.end - _LEFT - 12) / _LETTER)
    for mark, color, given in entries:
        name = shortened(given, most)
        needed = 12 + len(name) * _LETTER
        if x > _LEFT and x + needed > width.end:
            x, y = float(_LEFT), y + _LEGEND
        parts += [_marked([(x, y)], mark, color), _text(x + 12, y + 4, name)]
        x += needed + 16
    return parts, y + _LEGEND / 2 + 2 if entries else top


def _line(
    x1: float, y1: float, x2: float, y2: float, *, opacity: float = 1.0, width: float = 1.0
) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="currentColor" '
        f'stroke-opacity="{opacity}" stroke-width="{width}"/>'
    )


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _ticks(low: float, high: float, least: float = 0.0) -> list[float]:
    """Return round numbers from low to high, about `_TICKS` of them, at least `least` apart."""
    raw = max(least, high / _TICKS - low / _TICKS)
    if not raw > 0 or not math.isfinite(raw):
        return [low, high]
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((power * f for f in (1, 2, 5, 10) if power * f >= raw), raw)
    if not step > 0 or not math.isfinite(step) or not math.isfinite(low / step):
        return [low, high]
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)][: 4 * _TICKS] or [low, high]
