"""The third executor: draws a schedule, as text and as a picture (SVG).

Both show every rank as a column and every round as a row. The picture also shows what each rank
holds before every round: a box per chunk, the darker the more ranks' numbers are added up in it.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from trainhall.distributed.collectives.schedule import Collective, Phase, Round, Schedule

Holdings = list[list[frozenset[int]]]
"""[rank][chunk]: the ranks whose numbers are added up there."""


@dataclass(frozen=True)
class Row:
    """One round of all ranks."""

    number: int
    phase: Phase
    ranks: dict[int, Round]
    """Rounds of the ranks that are not idle."""


def rows(schedule: Schedule) -> list[Row]:
    """Turn the schedule from ranks to rounds."""
    found: dict[int, dict[int, Round]] = {}
    for rank in range(schedule.world_size):
        for r in schedule.rounds(rank):
            found.setdefault(r.number, {})[rank] = r
    return [
        Row(number, next(iter(ranks.values())).phase, ranks)
        for number, ranks in sorted(found.items())
    ]


def text(schedule: Schedule) -> str:
    """Draw a table: `3→1` sends chunk 3 to rank 1, `+2←0` adds rank 0's chunk 2, `2←0` takes it."""
    table = [["round", "", *(f"rank {rank}" for rank in range(schedule.world_size))]]
    for row in rows(schedule):
        cells = [_cell(row.ranks.get(rank)) for rank in range(schedule.world_size)]
        table.append([str(row.number), row.phase, *cells])
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        for cells in table
    ]
    return "\n".join([str(schedule), "", *lines])


def _cell(r: Round | None) -> str:
    parts = []
    if r and r.send:
        parts.append(f"{_short(r.send.chunks)}→{r.send.peer}")
    if r and r.receive:
        plus = "+" if r.receive.add else ""
        parts.append(f"{plus}{_short(r.receive.chunks)}←{r.receive.peer}")
    return " ".join(parts) or "·"


def _short(chunks: range) -> str:
    return str(chunks.start) if len(chunks) == 1 else f"{chunks.start}-{chunks.stop - 1}"


def holdings(schedule: Schedule) -> list[Holdings]:
    """Return every rank's chunks before the first round and after each."""
    ranks = range(schedule.world_size)
    if schedule.collective is Collective.ALL_GATHER:
        now = [[frozenset({c} if c == rank else ()) for c in range(schedule.chunks)]
               for rank in ranks]  # fmt: skip
    else:
        now = [[frozenset({rank})] * schedule.chunks for rank in ranks]
    found = [now]
    for row in rows(schedule):
        after = [list(held) for held in now]
        for rank, r in row.ranks.items():
            if r.receive:
                for chunk in r.receive.chunks:
                    came = now[r.receive.peer][chunk]
                    after[rank][chunk] = after[rank][chunk] | came if r.receive.add else came
        found.append(after)
        now = after
    return found


_BOX, _GAP, _LEFT, _TOP, _ROW = 18, 28, 130, 64, 62
"""Pixels: a chunk's box, between ranks, the margins, and from one row to the next."""


def svg(schedule: Schedule) -> str:
    """Draw the picture: a solid arrow is added to what it reaches, a dashed one replaces it."""
    columns = schedule.chunks * _BOX + _GAP
    found, states = rows(schedule), holdings(schedule)
    width = _LEFT + schedule.world_size * columns
    height = _TOP + len(found) * _ROW + _BOX + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _label(16, 24, str(schedule), size=15),
    ]
    parts += [
        _label(_LEFT + rank * columns, _TOP - 10, f"rank {rank}")
        for rank in range(schedule.world_size)
    ]
    for i, row in enumerate(found):
        parts += _round(row, _TOP + i * _ROW, columns, schedule.chunks)
    for i, held in enumerate(states):
        for rank, chunks in enumerate(held):
            for chunk, added in enumerate(chunks):
                x = _LEFT + rank * columns + chunk * _BOX
                share = len(added) / schedule.world_size
                parts.append(_box(x, _TOP + i * _ROW, _color(chunk, schedule.chunks), share))
    return "\n".join([*parts, "</svg>\n"])


def _round(row: Row, top: int, columns: int, chunks: int) -> Iterator[str]:
    middle = top + (_ROW + _BOX) / 2
    yield _label(16, middle - 4, f"round {row.number}")
    yield _label(16, middle + 11, row.phase, color="#777")
    for rank, r in row.ranks.items():
        if r.receive:
            begin = (_middle(r.receive.peer, r.receive.chunks, columns), top + _BOX)
            end = (_middle(rank, r.receive.chunks, columns), top + _ROW - 3)
            color = _color(r.receive.chunks.start, chunks)
            yield _arrow(begin, end, color, dashed=not r.receive.add)


def _middle(rank: int, chunks: range, columns: int) -> float:
    return _LEFT + rank * columns + (chunks.start + chunks.stop) / 2 * _BOX


def _color(chunk: int, chunks: int) -> str:
    return f"hsl({210 + 360 * chunk // chunks}, 65%, 45%)"


def _label(x: float, y: float, text: str, *, size: int = 12, color: str = "#222") -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{color}">{text}</text>'


def _box(x: float, y: float, color: str, share: float) -> str:
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{_BOX - 2}" height="{_BOX - 2}" rx="2" fill="{color}" '
        f'fill-opacity="{share:.3g}" stroke="{color}"/>'
    )


def _arrow(
    begin: tuple[float, float], end: tuple[float, float], color: str, *, dashed: bool
) -> str:
    (x1, y1), (x2, y2) = begin, end
    turned = math.degrees(math.atan2(x1 - x2, y2 - y1))
    dashes = ' stroke-dasharray="4 3"' if dashed else ""
    return (
        f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{color}"{dashes}/>'
        f'<path d="M0,0 L-3,-8 L3,-8 Z" fill="{color}" '
        f'transform="translate({x2:g},{y2:g}) rotate({turned:.4g})"/>'
    )
