"""Which steps of a rank count: those that nobody took over, whenever they are told.

An attempt that was revoked, as its host fell silent, may have measured more than was shipped. The
next attempt begins at a checkpoint, so up to the newest one that the revoked attempt had committed
nobody else measures these steps; from there on its own are void.

Ranks regroup under the next generation of their attempt while they run. Who is left out may not
know it: the host's agent is dead, or cut off. Such ranks go on as long as they can, and what they
wrote is shipped when an agent is there again. They may have been right up to the step behind which
the others went on, and nothing of it may be lost; what they tell from there on is void.

A process outlives regroupings, so the generation in which it began does not say in which one it
wrote. Where it ran does: a host belongs to an attempt from one generation up to another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from trainhall.db.documents import GenerationRecord, GenerationStart


@dataclass(frozen=True, slots=True)
class Origin:
    """Of what a rank process tells."""

    generation: int = 0
    """In which the process began; 0: nobody knows."""
    node_id: str | None = None
    """Of the host that ships it; None: nobody knows."""


UNKNOWN = Origin()


class Generations(Protocol):
    """What is known of an attempt: its row, or these columns of it."""

    @property
    def revoked(self) -> bool: ...

    @property
    def generations(self) -> Sequence[GenerationRecord] | None:
        """None, or no more than the first one: it has not regrouped."""

    @property
    def began(self) -> Mapping[int, GenerationStart]: ...


def void_from(attempt: Generations, origin: Origin, saved_step: int | None = None) -> int | None:
    """The first step from which on what these ranks tell is void; 0: all of it is, None: nothing.

    Before a later generation has told where it goes on, nobody knows, and nothing is void.

    Args:
        saved_step: of the newest checkpoint that the attempt has committed, where what a revoked
            one had measured up to there counts.
    """
    found = []
    if attempt.revoked:
        found.append(0 if saved_step is None else saved_step + 1)
    found += _taken_over(attempt, origin)
    return min(found, default=None)


def _taken_over(attempt: Generations, origin: Origin) -> list[int]:
    """Where later generations of the attempt went on without these ranks."""
    found: list[int] = []
    if not attempt.began or not origin.generation:
        return found
    last = _last_generation(attempt.generations, origin)
    for generation, start in attempt.began.items():
        left_out = last is not None and last < generation
        restarted = start.restart_step is not None
        first = start.restart_step if restarted else start.step
        # One that began at a checkpoint has none of the processes that had the state of before.
        since = generation if start.since is None else start.since
        if left_out or (restarted and origin.generation < since):
            found += [first] if first is not None else []
    return found


def _last_generation(generations: Sequence[GenerationRecord] | None, origin: Origin) -> int | None:
    """The last one that ranks of this origin can belong to: up to which their host was part of the
    attempt without a break. None: it was not, where they began, and tells in another's name."""
    last = None
    for entry in generations or ():
        if entry.generation < origin.generation:
            continue
        if origin.node_id is None or entry.allocation.host(origin.node_id) is None:
            break
        last = entry.generation
    return last
