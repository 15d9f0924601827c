"""The parts of an event's message that Trainhall uses: scalars, and parameters of the HParams
plugin. Read without the protobuf library, from the fields' numbers in TensorFlow's `event.proto`,
`summary.proto`, `tensor.proto` and TensorBoard's `plugin_data.proto`.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FORMATS = {1: "<f", 2: "<d", 3: "<i", 9: "<q", 19: "<e"}
"""Formats of one number in `tensor_content`, by the tensor's type."""
_LISTS = {5: "<f", 6: "<d"}
"""Fields of a tensor with a list of floating-point numbers, and their formats."""
_INTEGER_LISTS = (7, 10, 11)
_SCALARS, _HPARAMS = "scalars", "hparams"
_Value = int | bytes


@dataclass
class Event:
    """A record of an event file."""

    wall_time: float = 0.0
    """Seconds since 1970."""
    step: int = 0
    scalars: list[tuple[str, float]] = field(default_factory=list)
    """Tags and values, in their order."""
    parameters: dict[str, str] = field(default_factory=dict)


def read_event(data: bytes) -> Event:
    """Read an event; what is neither a scalar nor a parameter is left out.

    Raises:
        ValueError: it is none.
    """
    event = Event()
    try:
        for number, value in _fields(data):
            if number == 1:
                (event.wall_time,) = struct.unpack("<d", _content(value))
            elif number == 2:
                event.step = _signed(value)
            elif number == 5:
                for inner, summary in _fields(_content(value)):
                    if inner == 1:
                        _read_value(_content(summary), event)
    except struct.error as error:
        raise ValueError(str(error)) from None
    return event


def _read_value(data: bytes, event: Event) -> None:
    tag, plugin, content = "", "", b""
    simple: float | None = None
    tensor: bytes | None = None
    for number, value in _fields(data):
        if number == 1:
            tag = _content(value).decode("utf-8", "replace")
        elif number == 2:
            (simple,) = struct.unpack("<f", _content(value))
        elif number == 8:
            tensor = _content(value)
        elif number == 9:
            plugin, content = _plugin_of(_content(value))
    if plugin == _HPARAMS:
        event.parameters |= _parameters_of(content)
    elif simple is None and tensor is not None and plugin in ("", _SCALARS):
        simple = _scalar_of(tensor)
    if simple is not None and tag:
        event.scalars.append((tag, simple))


def _plugin_of(metadata: bytes) -> tuple[str, bytes]:
    """Return the name of a plugin, and its data."""
    name, content = "", b""
    for number, value in _fields(metadata):
        if number == 1:
            for inner, part in _fields(_content(value)):
                if inner == 1:
                    name = _content(part).decode("utf-8", "replace")
                elif inner == 2:
                    content = _content(part)
    return name, content


def _scalar_of(tensor: bytes) -> float | None:
    """Return the number of a tensor without dimensions; None: it is something else."""
    kind = 0
    found: float | None = None
    content = b""
    for number, value in _fields(tensor):
        if number == 1:
            kind = _signed(value)
        elif number == 2 and _content(value):
            return None  # it has a dimension
        elif number == 4:
            content = _content(value)
        elif number in _LISTS:
            # One number, packed or not, looks the same.
            if len(_content(value)) != struct.calcsize(_LISTS[number]):
                return None
            (found,) = struct.unpack(_LISTS[number], _content(value))
        elif number in _INTEGER_LISTS:
            found = float(_signed(value if isinstance(value, int) else _varint(value, 0)[0]))
    if content:
        number_format = _FORMATS.get(kind)
        if number_format is None or len(content) != struct.calcsize(number_format):
            return None
        return float(struct.unpack(number_format, content)[0])
    if found is None and kind in _FORMATS:
        return 0.0  # as protobuf leaves a zero out
    return found


def _parameters_of(data: bytes) -> dict[str, str]:
    """Return the parameters with which a session of the HParams plugin starts."""
    found = {}
    for number, session in _fields(data):
        if number != 3:
            continue
        for inner, entry in _fields(_content(session)):
            if inner == 1:
                parts = dict(_fields(_content(entry)))
                name = _content(parts.get(1, b"")).decode("utf-8", "replace")
                value = _parameter_of(_content(parts.get(2, b"")))
                if name and value is not None:
                    found[name] = value
    return found


def _parameter_of(data: bytes) -> str | None:
    for number, value in _fields(data):
        if number == 2:
            (decimal,) = struct.unpack("<d", _content(value))
            return str(int(decimal)) if decimal.is_integer() else str(decimal)
        if number == 3:
            return _content(value).decode("utf-8", "replace")
        if number == 4:
            return "true" if value else "false"
    return None


def _fields(data: bytes) -> Iterator[tuple[int, _Value]]:
    """Yield numbers and values of a message's fields: integers as such, the rest as bytes.

    Raises:
        ValueError: it is no message.
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if kind == _BYTES:
            size, at = _varint(data, at)
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"no field begins at byte {at}")
        if at + size > len(data):
            raise ValueError(f"the field {number} ends early")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return an integer and the offset behind it."""
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError(f"an integer does not end at byte {at}")


def _signed(value: _Value) -> int:
    if not isinstance(value, int):
        raise ValueError("bytes where an integer should be")
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value


def _content(value: _Value) -> bytes:
    if isinstance(value, int):
        raise ValueError("an integer where bytes should be")
    return value
