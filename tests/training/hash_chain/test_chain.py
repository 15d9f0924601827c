"""The chain over the steps of a reproducible job, and where two runs diverge."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhall.training.hash_chain.chain import (
    GENESIS,
    Entry,
    as_number,
    as_text,
    compare,
    next_link,
)
from trainhall.training.hash_chain.writer import samples_digest


@dataclass
class Recorded:
    """A chain in memory; it counts how often steps are read."""

    entries: list[Entry]
    saved: dict[int, str] = field(default_factory=dict)
    looks: int = 0

    @property
    def last(self) -> int:
        return len(self.entries)

    def entry(self, step: int) -> Entry:
        self.looks += 1
        return self.entries[step - 1]

    def weights(self) -> Mapping[int, str]:
        return self.saved


def recorded(steps: int, begin: str = GENESIS, **planted: tuple[int, float]) -> Recorded:
    """A run, with a number planted at a step: `loss=(7, 0.5)`."""
    link, entries = begin, []
    for step in range(1, steps + 1):
        numbers = {"samples": step, "loss": 1 / step, "gradient_norm": 2 / step}
        for name, (at, value) in planted.items():
            if step == at:
                numbers[name] = value
        link = next_link(
            link,
            step,
            int(numbers["samples"]),
            numbers["loss"],
            numbers["gradient_norm"],
        )
        entries.append(
            Entry(
                link,
                str(numbers["samples"]),
                numbers["loss"],
                numbers["gradient_norm"],
            )
        )
    return Recorded(entries)


@given(st.integers(1, 300), st.sampled_from(["samples", "loss", "gradient_norm"]), st.data())
def test_chain_locates_a_planted_difference(steps: int, name: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(1, steps))
    planted: dict[str, Any] = {name: (at, 1000.0)}
    one, other = recorded(steps), recorded(steps, **planted)
    result = compare(one, other)
    assert (result.step, list(result.differs)) == (at, [name])
    assert one.looks <= math.log2(steps) + 3


def test_chain_detects_one_bit_of_a_loss() -> None:
    result = compare(recorded(9), recorded(9, loss=(3, math.nextafter(1 / 3, 1))))
    assert result.step == 3


def test_chain_compares_common_length() -> None:
    result = compare(recorded(9), recorded(5))
    assert (result.step, result.compared) == (None, 5)


def test_chain_reports_different_checkpoint_weights() -> None:
    one, other = recorded(9), recorded(9, loss=(8, 1.0))
    one.saved, other.saved = {3: "aa", 6: "bb", 9: "cc"}, {3: "aa", 6: "xx", 7: "yy"}
    result = compare(one, other)
    assert (result.step, result.differs) == (6, {"weights": ("bb", "xx")})
    other.saved = {3: "aa", 8: "zz"}
    assert compare(one, other).step == 8
    assert compare(one, replace(one, saved={9: "dd"})).differs == {"weights": ("cc", "dd")}


def test_chain_differs_at_once_for_other_start() -> None:
    result = compare(recorded(4), recorded(4, begin="11" * 32))
    assert (result.step, list(result.differs)) == (1, ["link"])


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=40), st.data())
def test_chain_part_digests_add_up(samples: list[int], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(samples)))
    indices = np.asarray(samples, dtype=np.int64)
    parts = samples_digest(indices[:at], 0) + samples_digest(indices[at:], at)
    assert parts % 2**64 == samples_digest(indices, 0)


def test_digest_depends_on_positions() -> None:
    assert samples_digest(np.asarray([3, 4]), 0) != samples_digest(np.asarray([4, 3]), 0)


def test_chain_links_normalise_nan_not_zero() -> None:
    def link(loss: float) -> str:
        return next_link(GENESIS, 1, 0, loss, 0.0)

    assert link(math.nan) == link(-math.nan)
    assert link(0.0) != link(-0.0)


@pytest.mark.parametrize("digest", ["0" * 64, "f" * 64, "0123456789abcdef" * 4])
def test_series_keeps_52_bits_of_a_digest(digest: str) -> None:
    assert as_text(as_number(digest)) == digest[:13]
