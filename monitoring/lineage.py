"""Lineage of steps: which rank's reports of a step count, whenever they arrive.

An attempt that was revoked, as its host became unreachable, may have measured more than was
shipped. The next attempt begins at a checkpoint, so no other measures the steps up to the newest
one that the revoked attempt had committed; its later steps are superseded.

Ranks regroup under the next generation of their attempt while they run. A rank that is left out may
not know it: the host's agent is dead, or cut off. Such ranks continue as long as they can, and
their data is shipped when an agent is there again. They may have been right up to the step after
which the others continued, and nothing of it may be lost; their later reports are superseded.

A process outlives regroupings, so the generation in which it began does not say in which one it
wrote. Its host does: a host belongs to an attempt from one generation up to another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trainhall.db.documents import GenerationRecord, GenerationStart


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of a rank process's reports."""

    generation: int = 0
    """Generation in which the process began; 0: unknown."""
    node_id: str | None = None
    """Host that ships it; None: unknown."""


UNKNOWN = Origin()


class Generations(Protocol):
    """Lineage columns of an attempt's row."""

    @property
    def revoked(self) -> bool: ...

    @property
    def generations(self) -> Sequence[GenerationRecord] | None:
        """None, or no more than the first one: it has not regrouped."""

    @property
    def began(self) -> Mapping[int, GenerationStart]: ...


RUN_ATTEMPT = 0
"""Number under which the metrics of a run are stored."""


@dataclass(frozen=True)
class _RunAttempt:
    """Stands for the attempt of a run, which runs elsewhere and has none: nothing of it is ever
    superseded."""

    number: int = RUN_ATTEMPT
    revoked: bool = False
    first_step: int = 0
    in_place: bool = False
    finished_at: None = None
    generations: Sequence[GenerationRecord] | None = None
    began: Mapping[int, GenerationStart] = field(default_factory=dict)
    saved_step: None = None


OF_RUN = _RunAttempt()


def superseded_from(
    attempt: Generations, origin: Origin, saved_step: int | None = None
) -> int | None:
    """Return the first step whose reports from these ranks are superseded; 0: all are, None: none.

    Before a later generation has reported its first step, it is unknown, and nothing is superseded.

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
    """Return the first steps of later generations of the attempt that left these ranks out."""
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
    """Return the last generation that ranks of this origin can belong to.

    Up to it their host was part of the attempt without a break. None: it was not part of the
    attempt where they began, and reports under another's name.
    """
    last = None
    for entry in generations or ():
        if entry.generation < origin.generation:
            continue
        if origin.node_id is None or entry.allocation.host(origin.node_id) is None:
            break
        last = entry.generation
    return last
