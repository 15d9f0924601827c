"""Every algorithm adds up exactly, sends what its formula says, and refuses what cannot be."""

import re
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from math import ceil, log2
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import share_of

from trainhall.distributed.collectives.algorithms.hierarchical import Hierarchical
from trainhall.distributed.collectives.algorithms.parameter_server import ParameterServer
from trainhall.distributed.collectives.algorithms.registry import NAMES, all_reduce
from trainhall.distributed.collectives.algorithms.ring import (
    Ring,
    RingAllGather,
    RingOfTwo,
    RingReduceScatter,
)
from trainhall.distributed.collectives.errors import CollectiveInputError, ScheduleError
from trainhall.distributed.collectives.message import Array
from trainhall.distributed.collectives.schedule import (
    Phase,
    Receive,
    Round,
    Schedule,
    Send,
    even_cuts,
)
from trainhall.distributed.collectives.simulate import simulate


def laid_out(name: str, world_size: int) -> Schedule:
    """On hosts of 5 ranks, the last one perhaps with fewer."""
    hosts = [range(a, min(a + 5, world_size)) for a in range(0, world_size, 5)]
    return all_reduce(name, world_size, hosts=hosts)


def integers(world_size: int, elements: int) -> list[Array]:
    return [np.random.default_rng(rank).integers(-(2**40), 2**40, elements)
            for rank in range(world_size)]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_allreduce_is_exact_for_1_to_64_ranks(name: str) -> None:
    for world_size in (*range(1, 34), 47, 48, 63, 64):
        tensors = integers(world_size, 37)  # fewer elements than ranks, and more
        outcome = simulate(laid_out(name, world_size), tensors)
        for tensor in outcome.tensors:
            np.testing.assert_array_equal(tensor, sum(tensors))


@st.composite
def collectives(draw: st.DrawFn) -> tuple[Schedule, list[int]]:
    """An all-reduce of any layout, and any cuts of a tensor."""
    name = draw(st.sampled_from(NAMES))
    world_size = draw(st.integers(1, 12))
    of_rank = draw(st.lists(st.integers(0, 3), min_size=world_size, max_size=world_size))
    hosts = [[rank for rank in range(world_size) if of_rank[rank] == h] for h in set(of_rank)]
    servers = draw(st.integers(1, world_size))
    schedule = all_reduce(name, world_size, hosts=hosts, servers=servers)
    inner = st.lists(st.integers(0, 30), min_size=schedule.chunks - 1, max_size=schedule.chunks - 1)
    return schedule, [0, *sorted(draw(inner)), 30]


@settings(max_examples=share_of(100))
@given(collectives(), st.data())
def test_allreduce_is_independent_of_cuts_and_order(
    collective: tuple[Schedule, list[int]], data: st.DataObject
) -> None:
    schedule, cuts = collective
    order = data.draw(st.randoms(use_true_random=False))
    tensors = integers(schedule.world_size, 30)
    outcome = simulate(schedule, tensors, cuts=cuts, choose=order.randrange)
    for tensor in outcome.tensors:
        np.testing.assert_array_equal(tensor, sum(tensors))


@settings(max_examples=share_of(50))
@given(collectives(), st.randoms(use_true_random=False))
def test_allreduce_is_bit_equal_on_all_ranks(
    collective: tuple[Schedule, list[int]], order: Random
) -> None:
    schedule, cuts = collective
    tensors = [np.random.default_rng(rank).standard_normal(30).astype(np.float32)
               for rank in range(schedule.world_size)]  # fmt: skip
    first = simulate(schedule, tensors, cuts=cuts)
    again = simulate(schedule, tensors, cuts=cuts, choose=order.randrange)
    assert {tensor.tobytes() for tensor in first.tensors + again.tensors} == {
        first.tensors[0].tobytes()
    }
    np.testing.assert_allclose(first.tensors[0], sum(tensors), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("world_size", [1, 2, 3, 8, 13])
@pytest.mark.parametrize("elements", [0, 5, 40])
def test_reduce_scatter_and_all_gather_are_exact(world_size: int, elements: int) -> None:
    tensors = integers(world_size, elements)
    cuts = even_cuts(elements, world_size)
    parts = [slice(a, b) for a, b in pairwise(cuts)]
    scattered = simulate(RingReduceScatter(world_size), tensors).tensors
    gathered = simulate(RingAllGather(world_size), tensors).tensors
    for rank, part in enumerate(parts):
        np.testing.assert_array_equal(scattered[rank][part], np.sum(tensors, axis=0)[part])
        for other in gathered:
            np.testing.assert_array_equal(other[part], tensors[rank][part])


def halving_doubling(n: int) -> list[Fraction]:
    power = 2 ** int(log2(n))
    exchanged = 2 * Fraction(power - 1, power)
    folded = [Fraction(1), exchanged + 1] * (n - power)
    return folded + [exchanged] * (n - len(folded))


def parameter_server(n: int, servers: int) -> list[Fraction]:
    server = Fraction(servers - 1, servers) + Fraction(n - 1, servers)
    serves = {c * n // servers for c in range(servers)}
    return [server if rank in serves else Fraction(1) for rank in range(n)]


THEORY: dict[str, Callable[[int], list[Fraction]]] = {
    "ring": lambda n: [2 * Fraction(n - 1, n)] * n,
    "halving_doubling": halving_doubling,
    "parameter_server": lambda n: parameter_server(n, ceil(n / 5)),
    "naive": lambda n: [Fraction(n - 1)] + [Fraction(1)] * (n - 1),
}


@pytest.mark.parametrize("name", THEORY)
@pytest.mark.parametrize("world_size", [1, 2, 3, 7, 8, 13, 16])
def test_each_rank_sends_the_bytes_of_the_formula(name: str, world_size: int) -> None:
    schedule = laid_out(name, world_size)
    tensors = [np.zeros(schedule.chunks * 3, np.float32) for _ in range(world_size)]
    sent = simulate(schedule, tensors).sent_bytes
    size = tensors[0].nbytes
    assert [Fraction(count, size) for count in sent] == THEORY[name](world_size)


@pytest.mark.parametrize("world_size", [1, 2, 3, 7, 8, 13, 16])
def test_tree_sends_once_up_and_down(world_size: int) -> None:
    tensors = [np.zeros(4) for _ in range(world_size)]
    sent = simulate(laid_out("tree", world_size), tensors).sent_bytes
    tensor = tensors[0].nbytes
    assert sum(sent) == 2 * (world_size - 1) * tensor
    assert sent[0] == max(sent) == ceil(log2(world_size)) * tensor


def test_hierarchy_sends_between_host_leaders_only() -> None:
    hosts = ((0, 1, 2, 3), (4, 5, 6), (7,))
    schedule = Hierarchical(8, hosts)
    host = {rank: number for number, ranks in enumerate(hosts) for rank in ranks}
    crossing = [
        (rank, len(r.send.chunks))
        for rank in range(8)
        for r in schedule.rounds(rank)
        if r.send and host[rank] != host[r.send.peer]
    ]
    assert {rank for rank, _ in crossing} == {0, 4, 7}
    assert sum(count for _, count in crossing) == 3 * 2 * (3 - 1)  # chunks of a third: 2(H-1)/H


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Ring(0), "world_size is 0; a collective has at least 1 rank"),
        (lambda: RingOfTwo(3), "world_size is 3; a ring of two has 2 ranks"),
        (lambda: ParameterServer(4, 5), "servers is 5; servers are ranks, so there may be 1 to "),
        (lambda: ParameterServer(4, 0), "servers is 0"),
        (lambda: Hierarchical(5, ((0, 1), (2, 3))), "hosts of 2, 2 ranks do not match a world of"),
        (lambda: Hierarchical(4, ((0, 1), (1, 2))), "must be on exactly one host"),
        (lambda: Hierarchical(2, ((0, 1), ())), "hosts of 2, 0 ranks"),
        (lambda: all_reduce("star", 2), "there is no algorithm 'star'; there are ring, tree"),
        (
            lambda: Round(
                2, Phase.REDUCE, Send(1, range(4)), Receive(1, range(3, 5), add=False)
            ),
            "round 2 sends chunks 0-3 and replaces chunks 3-4: they share a chunk",
        ),
    ],
)  # fmt: skip
def test_impossible_layout_is_refused(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ScheduleError, match=re.escape(message)):
        build()


def test_allgather_delivers_every_contribution() -> None:
    tensors: list[np.ndarray] = [np.zeros(4), np.zeros(5), np.zeros(4), np.zeros(4, np.float32)]
    message = "4 of float64 on ranks 0, 2; 5 of float64 on rank 1; 4 of float32 on rank 3"
    with pytest.raises(CollectiveInputError, match=message):
        simulate(Ring(4), tensors)
    with pytest.raises(CollectiveInputError, match="needs a tensor for each rank, and there are 3"):
        simulate(Ring(4), tensors[:3])


@pytest.mark.parametrize("cuts", [[0, 1, 4], [0, 3, 2, 4, 4], [1, 2, 3, 4, 4], [0, 1, 2, 3, 5]])
def test_simulate_refuses_invalid_cuts(cuts: list[int]) -> None:
    with pytest.raises(CollectiveInputError, match="cuts must be 5 rising numbers from 0 to 4"):
        simulate(Ring(4), [np.zeros(4)] * 4, cuts=cuts)
