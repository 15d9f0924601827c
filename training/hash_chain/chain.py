"""The hash chain over the steps of a reproducible job, by which two runs are compared; no torch.

Each step's link is the SHA-256 of the link before it, the step, a digest of the samples that all
ranks read, and the bits of loss and gradient norm. So two runs with the same link at a step had the
same numbers at every step up to it, and where they part is found by bisection. Checkpoints hold the
newest link, and a job resumes from there.

A job's series hold numbers, so of each digest they have the first 52 bits, which a double holds:

    chain_link       the link of a step
    chain_samples    the digest of its samples
    chain_weights    the SHA-256 of the weights, at steps whose checkpoint was saved
"""

import hashlib
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Protocol

LINK, SAMPLES, WEIGHTS = "chain_link", "chain_samples", "chain_weights"
DIGESTS = {LINK: "link", SAMPLES: "samples", WEIGHTS: "weights"}
"""Names of the series where they stand alone."""

GENESIS = bytes(32).hex()
"""The link before the first step."""

_DIGITS = 13
"""Hexadecimal digits of 52 bits."""
_STEP = struct.Struct("<qQdd")


def next_link(link: str, step: int, samples: int, loss: float, norm: float) -> str:
    """Compute the link of a step, in hexadecimal, from the one before.

    Args:
        samples: digest of the samples, below 2^64.
    """
    # There are many NaNs, and a sum may give any of them.
    numbers = [math.nan if math.isnan(value) else value for value in (loss, norm)]
    packed = bytes.fromhex(link) + _STEP.pack(step, samples, *numbers)
    return hashlib.sha256(packed).hexdigest()


def as_number(digest: str) -> float:
    """Return the first 52 bits of a digest in hexadecimal, as a series has them."""
    return float(int(digest[:_DIGITS], 16))


def as_text(number: float) -> str:
    """Return the digest that `as_number` was given, as far as it is known."""
    return f"{int(number):0{_DIGITS}x}"


@dataclass(frozen=True)
class Entry:
    """The record of a step; numbers as reported, digests as far as they were kept."""

    link: str
    samples: str
    loss: object
    gradient_norm: object


class Chain(Protocol):
    """The recorded chain of a run: every step from the first to `last`."""

    @property
    def last(self) -> int: ...

    def entry(self, step: int) -> Entry: ...

    def weights(self) -> Mapping[int, str]:
        """Return the weights of steps whose checkpoint was saved."""


@dataclass(frozen=True)
class Comparison:
    """The result of comparing two runs."""

    compared: int
    """The last step that both have taken."""
    step: int | None
    """The first at which they differ; None: they do not."""
    differs: Mapping[str, tuple[object, object]]
    """The differences at that step: `samples`, `loss`, `gradient_norm`, `weights` or, if none of
    them does, `link` alone: they began from something else."""


def compare(one: Chain, other: Chain) -> Comparison:
    """Find the first step at which two runs diverge, in about log2(steps) entries of each."""
    compared = min(one.last, other.last)
    mine, theirs = one.weights(), other.weights()
    saved = sorted(mine.keys() & theirs.keys())
    changed = next((step for step in saved if mine[step] != theirs[step]), None)
    same, diverged = 0, compared + 1
    while diverged - same > 1:
        middle = (same + diverged) // 2
        if one.entry(middle).link == other.entry(middle).link:
            same = middle
        else:
            diverged = middle
    # A step's weights come of its gradients: they belong to it, and before any later step.
    if changed is not None and changed < diverged:
        return Comparison(compared, changed, {"weights": (mine[changed], theirs[changed])})
    if diverged > compared:
        return Comparison(compared, None, {})
    a, b = one.entry(diverged), other.entry(diverged)
    differs = {
        field.name: (getattr(a, field.name), getattr(b, field.name))
        for field in fields(Entry)
        if field.name != "link" and getattr(a, field.name) != getattr(b, field.name)
    }
    if changed == diverged:
        differs["weights"] = (mine[changed], theirs[changed])
    return Comparison(compared, diverged, differs or {"link": (a.link, b.link)})
