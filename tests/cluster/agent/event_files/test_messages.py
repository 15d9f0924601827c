"""Records and messages of event files, as PyTorch and TensorFlow write them."""

import struct

import pytest
from support.storage.event_files import event, message, record, scalar, single, tensor

from trainhall.cluster.agent.event_files.messages import read_event
from trainhall.cluster.agent.event_files.records import (
    MAX_RECORD_BYTES,
    masked_crc,
    read_records,
)


def test_checksum_is_that_of_tfrecord() -> None:
    crc = 0xE3069283  # CRC-32C of the digits, as RFC 3720 has it
    assert masked_crc(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_records_cut_short_are_left() -> None:
    data = record(b"one") + record(b"two")
    first = len(record(b"one"))
    for end in range(first, len(data)):
        assert read_records(data[:end]) == ([b"one"], first, 0, None)
    assert read_records(data).data == [b"one", b"two"]


@pytest.mark.parametrize("at", [0, 9, 13, 17])
def test_damaged_records_end_the_file(at: int) -> None:
    first = record(b"one")
    data = bytearray(first + record(b"two"))
    data[len(first) + at] ^= 1
    assert read_records(bytes(data)) == ([b"one"], len(first), 0, len(first))


def test_long_records_are_passed_over() -> None:
    length = MAX_RECORD_BYTES + 1
    head = struct.pack("<Q", length)
    data = record(b"one") + head + struct.pack("<I", masked_crc(head))
    assert read_records(data) == ([b"one"], len(record(b"one")), length + 16, None)


def test_scalars_of_both_kinds_are_read() -> None:
    packed = message((1, 1), (2, b"")) + message((5, struct.pack("<f", 0.5)))
    found = read_event(
        event(
            scalar("train/loss", 0.25),
            tensor("packed", packed),
            tensor("plain", message((1, 1)) + single(5, 2.0)),
            tensor("content", message((1, 2), (4, struct.pack("<d", 0.1)))),
            tensor("zero", message((1, 1))),
            tensor("long", message((1, 9), (10, -3))),
            step=7,
            time=12.5,
        )
    )
    assert (found.wall_time, found.step) == (12.5, 7)
    assert found.scalars == [
        ("train/loss", 0.25),
        ("packed", 0.5),
        ("plain", 2.0),
        ("content", 0.1),
        ("zero", 0.0),
        ("long", -3.0),
    ]


def test_other_values_are_left_out() -> None:
    shaped = message((1, 1), (2, message((2, message((1, 2))))), (4, bytes(8)))
    text = message((1, 7), (8, "hello"))
    image = message((1, "image"), (4, message((1, 2), (4, b"png"))))
    found = read_event(
        event(
            tensor("shaped", shaped), tensor("text", text, "text"), image, scalar("", 1.0), step=-1
        )
    )
    assert (found.scalars, found.step) == ([], -1)


def test_hparams_are_parameters() -> None:
    values = [
        ("lr", message((2, 0.1))),
        ("layers", message((2, 4.0))),
        ("name", message((3, "a"))),
        ("bias", message((4, 1))),
    ]
    session = message(*((1, message((1, name), (2, value))) for name, value in values))
    plugin = message((1, "hparams"), (2, message((3, session))))
    value = message((1, "_hparams_/session_start_info"), (9, message((1, plugin))))
    found = read_event(event(value))
    assert found.parameters == {"lr": "0.1", "layers": "4", "name": "a", "bias": "true"}


@pytest.mark.parametrize("data", [b"\x09\x00", b"\x2a\x05a", b"\xff" * 11, b"\x28\x01", b"\x0b"])
def test_no_event_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        read_event(data)
