"""Writes measured values for people: on hosts, in commands, in reasons and in reports alike.

The dashboard has the same rules in shared/format.ts.
"""

MISSING = "—"
"""In place of what was not measured, or does not exist."""
_LARGE = 1e9
"""From here on numbers are written as powers of ten."""


def figure(value: float) -> str:
    """Return a measured number in four digits."""
    if isinstance(value, int) and abs(value) < 10**6:
        return str(value)
    if 1e4 <= abs(value) < _LARGE:
        return f"{float(f'{value:.4g}'):,.0f}"
    return f"{value:.4g}"


def percent(share: float) -> str:
    """Return a share as whole percents, a smaller one in two digits."""
    return f"{100 * share:.0f} %" if not 1e-5 < share < 0.01 else f"{100 * share:.2g} %"


def brief(seconds: float) -> str:
    """Return a measured time in three digits, as 40 µs or 1.25 s."""
    for unit, factor in (("µs", 1e-6), ("ms", 1e-3)):
        if seconds < 999.5 * factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds:,.0f} s" if seconds >= 99.5 else f"{seconds:.3g} s"


def size_text(count: int) -> str:
    """Return a number of bytes in binary units, as 512 B or 1.5 GiB."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
