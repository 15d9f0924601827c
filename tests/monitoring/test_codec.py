"""Metric frames as the coordinator reads them: whatever the bytes are."""

import contextlib
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.storage.frames import frame, table

from trainhall.monitoring.codec import MAX_NAME, decode_frames
from trainhall.monitoring.errors import DamagedFrameError
from trainhall.training.link.frames import MetricTable, encode_frame, encode_tables

FLOATS = st.floats(allow_nan=True, allow_infinity=True)
NAMES = st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=20)


@st.composite
def tables(draw: st.DrawFn) -> MetricTable:
    rows = draw(st.integers(0, 5))
    names = draw(st.lists(NAMES, max_size=4, unique=True))
    return MetricTable(
        draw(st.none() | st.integers(0, 5)),
        draw(st.lists(st.integers(0, 2**53), min_size=rows, max_size=rows)),
        draw(st.lists(st.floats(0, 2e9), min_size=rows, max_size=rows)),
        {n: draw(st.lists(FLOATS, min_size=rows, max_size=rows)) for n in names},
    )


@given(st.lists(st.lists(tables(), max_size=3), max_size=3))
def test_codec_round_trip_is_exact(batches: list[list[MetricTable]]) -> None:
    body = b"".join(encode_frame(i, encode_tables(batch)) for i, batch in enumerate(batches, 1))
    found = list(decode_frames(body))
    expected = [one for batch in batches for one in batch]
    assert len(found) == len(expected)
    for read, written in zip(found, expected, strict=True):
        assert read.rank == written.rank
        assert read.steps.tolist() == list(written.steps)
        assert read.times.tolist() == list(written.times)
        assert list(read.columns) == list(written.columns)
        for name, values in written.columns.items():
            assert [struct.pack("d", v) for v in read.columns[name].tolist()] == [
                struct.pack("d", v) for v in values
            ]


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    with contextlib.suppress(DamagedFrameError):
        list(decode_frames(body))


@given(st.binary(max_size=300))
def test_codec_reads_or_refuses_any_payload(payload: bytes) -> None:
    with contextlib.suppress(DamagedFrameError):
        list(decode_frames(encode_frame(1, payload)))


@given(st.data())
def test_flipped_bit_is_noticed_or_harmless(data: st.DataObject) -> None:
    body = bytearray(frame(1, table([1, 2], loss=[0.5, 0.25])) + frame(2, table([3], loss=[1.0])))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(DamagedFrameError):
        list(decode_frames(bytes(body)))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"x", "cut short"),
        (b"THM2" + bytes(30), "no metric frame at byte 0"),
        (frame(1, table([1], loss=[1.0]))[:-1], "cut short"),
        (frame(2) + frame(2), "out of sequence"),
        (frame(1) + frame(3), "out of sequence"),
        (frame(0), "out of sequence"),
        (encode_frame(1, b"\1\0"), "not whole"),
        (encode_frame(1, b"\0\0\0"), "off by 1"),
        (encode_frame(1, struct.pack("<HiIH", 1, -2, 0, 0)), "no rank -2"),
        (encode_frame(1, struct.pack("<HiIH", 1, 0, 2**32 - 1, 0)), "cut short"),
    ],
)
def test_codec_errors_describe_the_fault(body: bytes, message: str) -> None:
    with pytest.raises(DamagedFrameError, match=message):
        list(decode_frames(body))


def test_codec_drops_odd_rows_only() -> None:
    odd = MetricTable(
        None,
        [1, -5, 3, 2**60, 5],
        [1.0, 2.0, math.nan, 4.0, 1e300],
        {"": [1.0] * 5, "a\nb\0": [2.0] * 5, "n" * 500: [3.0] * 5},
    )
    (read,) = decode_frames(frame(1, odd))
    assert read.steps.tolist() == [1]
    assert list(read.columns) == ["unnamed", "a\ufffdb\ufffd", "n" * MAX_NAME]
    assert [c.tolist() for c in read.columns.values()] == [[1.0], [2.0], [3.0]]
