"""The order in which a rank of a pipeline takes its passes, by schedule."""

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from trainhall.parallelism.degrees import SPLIT, STAGES_PER_RANK, Schedule

Kind = Literal["forward", "backward", "input", "weight"]
"""`input` and `weight` are the two halves of a backward pass that is split."""


@dataclass(frozen=True)
class Pass:
    """A pass of a micro-batch through one of a rank's stages."""

    kind: Kind
    chunk: int
    """Index of the rank's stage."""
    microbatch: int


def warm_up(schedule: Schedule, ranks: int, place: int, microbatches: int) -> int:
    """Return the number of forward passes that a rank takes before it alternates them with backward
    passes."""
    match schedule:
        case "gpipe":
            return microbatches
        case "1f1b":
            return min(microbatches, ranks - place) - 1
        case _:
            behind = ranks - place - 1
            far = behind if schedule in SPLIT else 2 * behind
            return min(2 * microbatches, turn_of(schedule, ranks, microbatches) + far)


def turn_of(schedule: Schedule, ranks: int, microbatches: int) -> int:
    """Return the number of micro-batches that a rank takes through a stage before it turns to its
    next one."""
    if STAGES_PER_RANK[schedule] == 1:
        return microbatches
    return microbatches // (microbatches // ranks)  # the rounds of the interleaved schedules


def passes(schedule: Schedule, ranks: int, place: int, microbatches: int) -> list[Pass]:
    """Return a rank's passes of a step, in its order."""
    if schedule == "zbv":
        return _v(ranks, place, microbatches)
    chunks = range(STAGES_PER_RANK[schedule])
    turn = turn_of(schedule, ranks, microbatches)
    splits = schedule in SPLIT

    def passes_of(kind: Kind) -> list[Pass]:
        return [
            Pass(kind, chunk, microbatch)
            for first in range(0, microbatches, turn)
            for chunk in (chunks if kind == "forward" else reversed(chunks))
            for microbatch in range(first, min(first + turn, microbatches))
        ]

    forward, weight = passes_of("forward"), passes_of("weight") if splits else []
    before = warm_up(schedule, ranks, place, microbatches)
    order = forward[:before]
    for index, backward in enumerate(passes_of("input" if splits else "backward")):
        order += forward[before + index : before + index + 1]
        order.append(backward)
        # What fills waiting at the end is put off by as much.
        order += weight[index - place : index - place + 1] if index >= place else []
    return order + weight[len(weight) - place :]


def _v(ranks: int, place: int, microbatches: int) -> list[Pass]:
    """Return the passes of ZBV (Qi et al., arXiv:2401.10241, section 6) in the order of
    `torch.distributed.pipelining`: that of at least 2 · ranks − 1 micro-batches, without those that
    do not exist."""
    number, behind = max(2 * ranks - 1, microbatches), ranks - place
    done: Counter[tuple[Kind, int]] = Counter()
    order: list[Pass] = []

    def take(*steps: tuple[Kind, int], times: int = 1) -> None:
        for _ in range(times):
            for step in steps:
                order.append(Pass(*step, done[step]))
                done[step] += 1

    down: tuple[Kind, int] = ("forward", 0)
    up: tuple[Kind, int] = ("forward", 1)
    take(down, times=2 * behind - 1)
    take(up, down, times=place)
    take(up, ("input", 1), ("weight", 1), times=behind)
    while done[up] < number:
        if done[down] < number:
            take(down)
        take(("input", 0), ("weight", 0), up, ("input", 1), ("weight", 1))
    take(("input", 0), ("input", 1), times=place)
    take(("input", 0), ("weight", 0), times=behind)
    for chunk in (1, 0):
        take(("weight", chunk), times=number - done["weight", chunk])
    return [each for each in order if each.microbatch < microbatches]


def shortened(order: list[Pass], rounds: int) -> list[Pass]:
    """Leave out passes in the middle that repeat those before: keep so many backward passes, and
    those of the micro-batches under way then."""
    kept, under_way, backward = [], set(), 0
    for each in order:
        key = (each.chunk, each.microbatch)
        if each.kind == "forward" and backward < rounds:
            under_way.add(key)
            kept.append(each)
        elif each.kind != "forward" and key in under_way:
            backward += 1
            kept.append(each)
    return kept
