"""Which steps of a rank count: those that no later generation of its attempt has taken over.

Ranks regroup under the next generation of their attempt while they run. Who is left out may not
know it: the host's agent is dead, or cut off. Such ranks go on as long as they can, and what they
wrote is shipped when an agent is there again. They may have been right up to the step behind which
the others went on, and nothing of it may be lost; what they tell from there on is void.

A process outlives regroupings, so the generation in which it began does not say in which one it
wrote. Where it ran does: a host belongs to an attempt from one generation up to another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


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
    def generations(self) -> Sequence[Mapping[str, Any]] | None:
        """None, or no more than the first one: it has not regrouped."""

    @property
    def began(self) -> Mapping[str, Mapping[str, Any]]: ...


def void_from(attempt: Generations, origin: Origin) -> int | None:
    """The first step from which on what these ranks tell is void; 0: all of it is, None: nothing.

    Before a later generation has told where it goes on, nobody knows, and nothing is void.
    """
    if attempt.revoked:
        return 0
    if not attempt.began or not origin.generation:
        return None
    last = _last_generation(attempt.generations, origin)
    found = []
    for number, told in attempt.began.items():
        generation = int(number)
        left_out = last is not None and last < generation
        first = told.get("anew", told.get("step"))
        # One that began at a checkpoint has none of the processes that had the state of before.
        if left_out or ("anew" in told and origin.generation < told.get("since", generation)):
            found += [first] if first is not None else []
    return min(found, default=None)


def _last_generation(generations: Sequence[Mapping[str, Any]] | None, origin: Origin) -> int | None:
    """The last one that ranks of this origin can belong to: up to which their host was part of the
    attempt without a break. None: it was not, where they began, and tells in another's name."""
    last = None
    for entry in generations or ():
        number = entry["generation"]
        if number < origin.generation:
            continue
        if not any(host["node_id"] == origin.node_id for host in entry["allocation"]):
            break
        last = number
    return last
