"""The measurement of links between ranks."""

import numpy as np
import pytest
from support.groups.in_process import InProcess, run_ranks

from trainhall.distributed.collectives.communicator import Communicator
from trainhall.distributed.collectives.cost import Link, LinkClass
from trainhall.distributed.collectives.simulate import simulate
from trainhall.distributed.probe import (
    THERE_AND_BACK,
    ByRings,
    Pairs,
    fit,
    informative,
    measure_links,
    measure_one_way,
)


def measured(hosts: list[list[int]]) -> list[dict[LinkClass, Link]]:
    def work(transport: InProcess) -> dict[LinkClass, Link]:
        rings = ByRings(Communicator(transport, timeout=30))
        links = measure_links(rings, hosts, seconds=0.05)
        return measure_one_way(rings, hosts, links, seconds=0.05)

    return run_ranks(sum(map(len, hosts)), work)


@pytest.mark.parametrize(
    ("hosts", "kinds"),
    [
        ([[0]], set()),
        ([[0, 1, 2]], {LinkClass.HOST}),
        ([[0], [1], [2]], {LinkClass.RACK}),
        ([[0, 3], [1], [2, 4]], {LinkClass.HOST, LinkClass.RACK}),
    ],
)
def test_probe_result_is_equal_on_all_ranks(hosts: list[list[int]], kinds: set[LinkClass]) -> None:
    first, *others = measured(hosts)
    assert set(first) == kinds
    assert all(other == first for other in others)
    for link in first.values():
        assert link.latency >= 0
        assert link.one_way
        assert link.one_way >= link.bandwidth > 0


def test_link_is_found_again_in_its_times() -> None:
    wanted = Link(3e-5, 12.5e6)
    found = fit([(m, 2 * wanted.latency + m / wanted.bandwidth) for m in (4096, 65536, 1 << 20)])
    assert found.latency == pytest.approx(wanted.latency)
    assert found.bandwidth == pytest.approx(wanted.bandwidth)


def test_probe_takes_latency_from_small_messages() -> None:
    times = [(4096, 1.0), (262144, 2.0), (1 << 20, 3.0), (4 << 20, 4.0), (16 << 20, 5.0)]
    assert informative(times) == [times[0], *times[2:]]
    assert informative(times[:3]) == times[:3]
    assert informative(times[:2]) == times[:2]


def test_probe_handles_implausible_times() -> None:
    found = fit([(1000, 1e-4), (2000, 4e-4)])
    assert found.latency == 0
    assert 2000 / 4e-4 <= found.bandwidth <= 1000 / 1e-4


def test_probe_pairs_do_not_overlap() -> None:
    schedule = Pairs(5, ((0, 3), (2, 1)))
    assert list(schedule.rounds(4)) == []
    assert [r.send.peer for r in schedule.rounds(2) if r.send] == [1, 1]
    assert [schedule.peer(rank) for rank in range(5)] == [3, 2, 1, 0, None]


def test_pair_may_send_there_and_back_instead() -> None:
    schedule = Pairs(3, ((2, 0),), THERE_AND_BACK)
    tensors = [np.full(5, rank) for rank in range(3)]
    simulated = simulate(schedule, tensors)
    assert [tensor.tolist() for tensor in simulated.tensors] == [[2] * 5, [1] * 5, [2] * 5]
    for rank in (0, 2):
        assert not any(r.send and r.receive for r in schedule.rounds(rank))
