"""Writes measured values for people, on hosts and in commands alike."""


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
