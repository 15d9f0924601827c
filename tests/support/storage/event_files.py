"""Event files as TensorBoard's writers make them, written here from the format's description."""

import struct
from collections.abc import Iterable
from pathlib import Path

from trainhall.cluster.agent.event_files.records import masked_crc


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    checksums = (struct.pack("<I", masked_crc(part)) for part in (length, data))
    return length + next(checksums) + data + next(checksums)


def integer(value: int) -> bytes:
    found = bytearray()
    value &= 2**64 - 1
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def message(*fields: tuple[int, int | float | bytes | str]) -> bytes:
    """A message; a float is a double."""
    found = b""
    for number, value in fields:
        match value:
            case int():
                found += integer(number << 3) + integer(value)
            case float():
                found += integer(number << 3 | 1) + struct.pack("<d", value)
            case _:
                data = value.encode() if isinstance(value, str) else value
                found += integer(number << 3 | 2) + integer(len(data)) + data
    return found


def single(number: int, value: float) -> bytes:
    """A field with a number of four bytes."""
    return integer(number << 3 | 5) + struct.pack("<f", value)


def event(*values: bytes, step: int = 0, time: float = 1000.0) -> bytes:
    return message((1, float(time)), (2, step), (5, message(*((1, value) for value in values))))


def scalar(tag: str, value: float) -> bytes:
    """A value of PyTorch's writer."""
    return message((1, tag)) + single(2, value)


def tensor(tag: str, content: bytes, plugin: str = "scalars") -> bytes:
    """A value of TensorFlow's writer."""
    return message((1, tag), (8, content), (9, message((1, message((1, plugin))))))


def append(path: Path, *events: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.writelines(map(record, events))


def append_scalars(
    path: Path, tag: str, points: Iterable[tuple[int, float]], time: float = 1000.0
) -> None:
    append(
        path, *(event(scalar(tag, value), step=step, time=time + step) for step, value in points)
    )
