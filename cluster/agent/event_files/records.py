"""Records of an event file: TFRecord's framing, without TensorFlow.

A record is its length (8 bytes), a checksum of these, its data, and a checksum of the data, all
little-endian. Checksums are CRC-32C, rotated and shifted ("masked").
"""

import struct
from typing import NamedTuple

MAX_RECORD_BYTES = 256 * 1024
"""Longer records are passed over unread: they are images, audio and graphs."""
_HEAD = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
OVERHEAD_BYTES = _HEAD.size + _CHECKSUM.size


class Records(NamedTuple):
    """The whole records at the beginning of some bytes."""

    data: list[bytes]
    end: int
    """Offset behind the last one."""
    passed_over: int
    """Bytes of a long record that follows."""
    damaged_at: int | None
    """Offset at which no record begins, though one should."""


def read_records(data: bytes) -> Records:
    """Read whole records; one that is cut short is left for the next time."""
    found: list[bytes] = []
    at = 0
    while at + _HEAD.size <= len(data):
        length, checksum = _HEAD.unpack_from(data, at)
        if masked_crc(data[at : at + 8]) != checksum:
            return Records(found, at, 0, at)
        begin, end = at + _HEAD.size, at + _HEAD.size + length
        if length > MAX_RECORD_BYTES:
            return Records(found, at, length + OVERHEAD_BYTES, None)
        if end + _CHECKSUM.size > len(data):
            break
        content = data[begin:end]
        if masked_crc(content) != _CHECKSUM.unpack_from(data, end)[0]:
            return Records(found, at, 0, at)
        found.append(content)
        at = end + _CHECKSUM.size
    return Records(found, at, 0, None)


def masked_crc(data: bytes) -> int:
    """Return the masked CRC-32C of some bytes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _row(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_TABLE = [_row(byte) for byte in range(256)]
