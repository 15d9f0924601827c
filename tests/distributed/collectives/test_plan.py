"""A rank's actions on a tensor of any size, without a deadlock."""

from collections import Counter

import numpy as np
import pytest
from support.groups.in_process import InProcess, run_ranks

from trainhall.distributed.collectives.algorithms.registry import NAMES, all_reduce
from trainhall.distributed.collectives.algorithms.ring import Ring
from trainhall.distributed.collectives.communicator import Communicator
from trainhall.distributed.collectives.message import Array
from trainhall.distributed.collectives.plan import Action, Piece, plan
from trainhall.distributed.collectives.schedule import Schedule, even_cuts
from trainhall.distributed.collectives.simulate import simulate

Message = tuple[int, int, int, int]
"""Source, destination, round and segment."""


def planned(
    schedule: Schedule, rank: int, *, elements: int = 23, lockstep: bool = False
) -> list[tuple[Action, Piece]]:
    cuts = even_cuts(elements, schedule.chunks)
    return plan(schedule.rounds(rank), cuts, most_elements=3, lockstep=lockstep)


def laid_out(name: str, world_size: int) -> Schedule:
    hosts = [range(a, min(a + 3, world_size)) for a in range(0, world_size, 3)]
    return all_reduce(name, world_size, hosts=hosts)


@pytest.mark.parametrize("lockstep", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_plan_starts_and_awaits_each_piece_once(name: str, lockstep: bool) -> None:
    for world_size in range(1, 9):
        schedule = laid_out(name, world_size)
        for rank in range(world_size):
            actions = planned(schedule, rank, lockstep=lockstep)
            begun = [piece for action, piece in actions if action is Action.BEGIN]
            ended = [piece for action, piece in actions if action in (Action.WAIT, Action.ADD)]
            assert Counter(begun) == Counter(ended) == Counter(dict.fromkeys(begun, 1))
            for piece in begun:
                assert actions.index((Action.BEGIN, piece)) < next(
                    at for at, (action, other) in enumerate(actions)
                    if other is piece and action in (Action.WAIT, Action.ADD)
                )  # fmt: skip


@pytest.mark.parametrize("lockstep", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_plan_reuses_only_free_buffers(name: str, lockstep: bool) -> None:
    for world_size in range(2, 9):
        for rank in range(world_size):
            taken: set[int] = set()
            for action, piece in planned(laid_out(name, world_size), rank, lockstep=lockstep):
                if piece.scratch is not None and action is Action.BEGIN:
                    assert piece.scratch not in taken
                    taken.add(piece.scratch)
                elif piece.scratch is not None and action is Action.ADD:
                    taken.remove(piece.scratch)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("elements", [0, 1, 5, 40])
def test_plan_in_lockstep_has_no_deadlock(name: str, elements: int) -> None:
    for world_size in range(1, 14):
        schedule = laid_out(name, world_size)
        left = [groups(schedule, rank, elements) for rank in range(world_size)]
        arrived: Counter[Message] = Counter()
        while any(left):
            # A group ends when both ends of all its messages are there, each the next on its rank.
            there = Counter(message for of_rank in left if of_rank for message in of_rank[0])
            there += arrived
            ended = [
                rank for rank, of_rank in enumerate(left)
                if of_rank and all(there[message] == 2 for message in of_rank[0])
            ]  # fmt: skip
            assert ended, f"{schedule}: every rank waits"
            for rank in ended:
                arrived.update(left[rank].pop(0))


def groups(schedule: Schedule, rank: int, elements: int) -> list[list[Message]]:
    """The messages of a rank that go at once, in order."""
    found: list[list[Message]] = [[]]
    for action, piece in planned(schedule, rank, elements=elements, lockstep=True):
        if action is Action.BEGIN:
            ends = (rank, piece.peer) if piece.sends else (piece.peer, rank)
            found[-1].append((*ends, piece.round.number, piece.segment))
        elif action is Action.START:
            found.append([])
    assert not found.pop()
    return found


@pytest.mark.parametrize("ranks", [2, 5])
@pytest.mark.parametrize("name", NAMES)
def test_in_lockstep_the_same_numbers_come_out(name: str, ranks: int) -> None:
    schedule = laid_out(name, ranks)
    tensors = [np.random.default_rng(rank).standard_normal(50) for rank in range(ranks)]

    def work(transport: InProcess) -> Array:
        transport.lockstep = True
        tensor = tensors[transport.rank].copy()
        Communicator(transport, timeout=30, segment_bytes=64).run(schedule, tensor)
        return tensor

    wanted = simulate(schedule, tensors).tensors
    for tensor, sums in zip(run_ranks(ranks, work), wanted, strict=True):
        np.testing.assert_array_equal(tensor, sums)


@pytest.mark.parametrize("lockstep", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_plan_adds_only_after_sending(name: str, lockstep: bool) -> None:
    for world_size in range(2, 9):
        for rank in range(world_size):
            leaving: set[Piece] = set()
            for action, piece in planned(laid_out(name, world_size), rank, lockstep=lockstep):
                if piece.sends and action is Action.BEGIN:
                    leaving.add(piece)
                elif piece.sends and action is Action.WAIT:
                    leaving.remove(piece)
                elif action is Action.ADD:
                    assert not any(piece.overlaps(other) for other in leaving)


def test_plan_of_two_ranks_sends_before_adding() -> None:
    actions = planned(all_reduce("ring", 2), 0, elements=6)
    assert [(action, piece.sends, piece.segment) for action, piece in actions] == [
        (Action.BEGIN, False, 0),
        (Action.BEGIN, False, 1),
        (Action.BEGIN, True, 0),
        (Action.BEGIN, True, 1),
        (Action.WAIT, True, 0),
        (Action.ADD, False, 0),
        (Action.WAIT, True, 1),
        (Action.ADD, False, 1),
    ]


def test_plan_of_two_ranks_receives_early() -> None:
    actions = planned(Ring(2), 0, elements=6)
    assert [(action, piece.sends) for action, piece in actions] == [
        (Action.BEGIN, False),
        (Action.BEGIN, True),
        (Action.BEGIN, False),
        (Action.ADD, False),
        (Action.BEGIN, True),
        (Action.WAIT, False),
        (Action.WAIT, True),
        (Action.WAIT, True),
    ]
