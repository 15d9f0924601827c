"""Numbers with units, as people write them on a command line: 64KiB, 10us, 100Gbit/s."""

import re

import typer

from trainhall.cli.base.errors import UsageError
from trainhall.cluster.durations import parse_duration

_DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BYTES = {f"{prefix}B": factor for prefix, factor in _DECIMAL.items()} | {
    f"{prefix}iB": 1024.0**power for power, prefix in enumerate("KMGT", start=1)
}
_BYTES["KB"] = _BYTES["kB"]
_RATES = {f"{unit}/s": factor for unit, factor in _BYTES.items()} | {
    f"{prefix}bit/s": factor / 8 for prefix, factor in _DECIMAL.items()
}
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def duration(text: str) -> float:
    """Parse seconds; raise typer.BadParameter if it is no duration."""
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if seconds < 0:
        raise typer.BadParameter(f"{text} is negative")
    return seconds


def refresh_interval(text: str) -> float:
    """Parse seconds, at least 0.2; else raise typer.BadParameter."""
    seconds = duration(text)
    if seconds < 0.2:
        raise typer.BadParameter(f"{text} is too short; use at least 0.2s")
    return seconds


def integer(text: str, option: str, *, least: int, most: int) -> int:
    """Raise UsageError unless it is an integer between the bounds."""
    if text.isascii() and text.isdigit() and least <= int(text) <= most:
        return int(text)
    raise UsageError(f"{option} takes integers from {least:,} to {most:,}, not {text!r}")


def size(text: str, option: str) -> float:
    """Parse bytes; raise UsageError if it is no size."""
    return _quantity(text, option, _BYTES | {"": 1.0}, "a size, such as 64KiB or 1GB")


def bandwidth(text: str, option: str) -> float:
    """Parse bytes a second; raise UsageError if it is no bandwidth."""
    return _quantity(text, option, _RATES, "a bandwidth, such as 100Gbit/s or 12.5GB/s")


def latency(text: str, option: str) -> float:
    """Parse seconds; raise UsageError if it is no time."""
    return _quantity(text, option, _SECONDS, "a latency, such as 10us")


def _quantity(text: str, option: str, units: dict[str, float], what: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d*)?(?:e[+-]?\d+)?)\s*(\S*)", text.strip())
    if found and found[2] in units and 0 < (value := float(found[1])) < 1e18:
        return value * units[found[2]]
    raise UsageError(f"{option} takes {what}, not {text!r}")
