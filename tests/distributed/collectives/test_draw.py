"""A schedule is drawn as text and as a picture."""

import xml.etree.ElementTree as ET

import pytest

from trainhall.distributed.collectives import draw
from trainhall.distributed.collectives.algorithms.registry import NAMES, all_reduce
from trainhall.distributed.collectives.algorithms.ring import Ring, RingAllGather, RingReduceScatter
from trainhall.distributed.collectives.schedule import Schedule

SVG = "{http://www.w3.org/2000/svg}"


def test_ring_as_text() -> None:
    assert (
        draw.text(Ring(3))
        == """\
ring all-reduce, 3 ranks, 3 chunks

round                  rank 0    rank 1    rank 2
0      reduce-scatter  2→1 +1←2  0→2 +2←0  1→0 +0←1
1      reduce-scatter  1→1 +0←2  2→2 +1←0  0→0 +2←1
2      all-gather      0→1 2←2   1→2 0←0   2→0 1←1
3      all-gather      2→1 1←2   0→2 2←0   1→0 0←1"""
    )


def test_idle_ranks_and_runs_of_chunks_as_text() -> None:
    lines = draw.text(all_reduce("halving_doubling", 3)).splitlines()
    assert lines[3].split() == ["0", "reduce", "0-1→1", "+0-1←0", "·"]


@pytest.mark.parametrize("name", NAMES)
def test_drawing_ends_with_whole_sums(name: str) -> None:
    schedule = all_reduce(name, 6, hosts=[[0, 1, 2], [3, 4, 5]], servers=4)
    for held in draw.holdings(schedule)[-1]:
        assert all(added == set(range(6)) for added in held)


@pytest.mark.parametrize("schedule", [RingReduceScatter(4), RingAllGather(4)])
def test_drawing_shows_each_ranks_chunks(schedule: Schedule) -> None:
    first, *_, last = draw.holdings(schedule)
    for rank, held in enumerate(last):
        full = [chunk for chunk, added in enumerate(held) if added]
        assert set(schedule.result(rank)) <= set(full)
    assert first != last


def test_drawing_has_all_messages_and_chunks() -> None:
    picture = ET.fromstring(draw.svg(Ring(4)))
    arrows = picture.findall(f"{SVG}line")
    assert len(arrows) == 6 * 4
    assert sum("stroke-dasharray" in arrow.attrib for arrow in arrows) == 3 * 4
    boxes = [box for box in picture.iter(f"{SVG}rect") if "rx" in box.attrib]
    assert len(boxes) == 7 * 4 * 4
    assert [box.attrib["fill-opacity"] for box in boxes[-16:]] == ["1"] * 16
