"""Measured times and sizes in words."""

import pytest

from trainhall.training.common.units import brief, size_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (4e-05, "40 µs"), (0.9997e-3, "1 ms"), (0.89, "890 ms"), (0.9997, "1 s"), (1.254, "1.25 s"),
        (99.6, "100 s"), (1234.5, "1,234 s"),
    ],
)  # fmt: skip
def test_time_has_three_digits_and_no_exponent(seconds: float, text: str) -> None:
    assert brief(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(512, "512 B"), (1536, "1.5 KiB"), (70 << 30, "70.0 GiB"), (2048 << 40, "2048.0 TiB")],
)
def test_size_has_a_binary_unit(count: int, text: str) -> None:
    assert size_text(count) == text
