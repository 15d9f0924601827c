"""Schedules among threads: the same sums with real concurrency, and an end to every failure."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.groups.in_process import InProcess, run_ranks, run_schedule

from trainhall.distributed.collectives.algorithms.registry import NAMES, all_reduce
from trainhall.distributed.collectives.algorithms.ring import Ring
from trainhall.distributed.collectives.communicator import Communicator
from trainhall.distributed.collectives.errors import (
    CollectiveError,
    CollectiveInputError,
    CollectiveTimeoutError,
    PeerLostError,
    ScheduleError,
    ScheduleViolationError,
)
from trainhall.distributed.collectives.message import Array, Header
from trainhall.distributed.collectives.simulate import simulate
from trainhall.distributed.collectives.transport import Line

PATIENCE = 30.0
"""Seconds; nothing that works takes so long."""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("world_size", [1, 2, 3, 6])
@pytest.mark.parametrize("segment_bytes", [1, 64, 1 << 20])
def test_in_process_matches_the_simulator(name: str, world_size: int, segment_bytes: int) -> None:
    hosts = [range(a, min(a + 4, world_size)) for a in range(0, world_size, 4)]
    schedule = all_reduce(name, world_size, hosts=hosts)
    tensors = [np.random.default_rng(rank).standard_normal(50) for rank in range(world_size)]
    found = run_schedule(schedule, tensors, segment_bytes=segment_bytes)
    for tensor, wanted in zip(found, simulate(schedule, tensors).tensors, strict=True):
        np.testing.assert_array_equal(tensor, wanted)


@pytest.mark.parametrize("name", NAMES)
def test_communicator_counts_what_it_sends(name: str) -> None:
    schedule = all_reduce(name, 4, hosts=[(0, 1), (2, 3)])

    def work(transport: InProcess) -> int:
        communicator = Communicator(transport, timeout=PATIENCE, segment_bytes=64)
        for _ in range(2):
            communicator.run(schedule, np.zeros(50))
        return communicator.sent_bytes

    once = simulate(schedule, [np.zeros(50)] * 4).sent_bytes
    assert run_ranks(4, work) == [2 * each for each in once]


@pytest.mark.parametrize("elements", [0, 1, 3])
def test_tensors_smaller_than_the_world(elements: int) -> None:
    found = run_schedule(Ring(5), [np.full(elements, 10**rank) for rank in range(5)])
    for tensor in found:
        np.testing.assert_array_equal(tensor, np.full(elements, 11111))


def test_many_collectives_follow_each_other() -> None:
    def work(transport: InProcess) -> list[list[int]]:
        communicator = Communicator(transport, timeout=PATIENCE)
        sums = []
        for step in range(30):
            tensor = np.array([step, transport.rank])
            communicator.run(all_reduce(NAMES[step % len(NAMES)], 3), tensor)
            sums.append(tensor.tolist())
        return sums

    assert run_ranks(3, work) == [[[3 * step, 3] for step in range(30)]] * 3


def failures(world_size: int, work: Callable[[InProcess], object]) -> list[Exception]:
    with pytest.raises(ExceptionGroup) as raised:
        run_ranks(world_size, work)
    return list(raised.value.exceptions)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dies", [0, 1, 4])
def test_in_process_collective_ends_when_rank_dies(name: str, dies: int) -> None:
    schedule = all_reduce(name, 5, hosts=[[0, 1, 2], [3, 4]])

    def work(transport: InProcess) -> None:
        communicator = Communicator(transport, timeout=PATIENCE)
        tensor = np.ones(100)
        communicator.run(schedule, tensor)
        if transport.rank == dies:
            raise MemoryError("no room")
        communicator.run(schedule, tensor)

    errors = failures(5, work)
    lost = [error for error in errors if isinstance(error, PeerLostError)]
    assert len(errors) == 5
    assert len(lost) == 4
    for error in lost:
        assert f"(rank {dies} ended with MemoryError: no room)" in str(error)


def test_in_process_timeout_names_rank_round_and_bytes() -> None:
    broken = threading.Barrier(2)

    def work(transport: InProcess) -> None:
        if transport.rank == 1:
            broken.wait(PATIENCE)
            return
        try:
            communicator = Communicator(transport, timeout=0.05, segment_bytes=80)
            communicator.run(Ring(2), np.ones(100))
        finally:
            broken.wait(PATIENCE)

    (error,) = failures(2, work)
    assert isinstance(error, CollectiveTimeoutError)
    assert str(error) == (
        "rank 0 timed out after 0.05 s: round 0 (reduce-scatter) still had 400 of 400 bytes to get "
        "from rank 1"
    )


def test_broken_group_stays_broken() -> None:
    def work(transport: InProcess) -> None:
        if transport.rank == 1:
            return
        communicator = Communicator(transport, timeout=PATIENCE)
        with pytest.raises(PeerLostError, match=r"rank 1 is gone \(rank 1 has finished\)"):
            communicator.run(Ring(2), np.ones(4))
        communicator.run(Ring(2), np.ones(4))

    (error,) = failures(2, work)
    assert isinstance(error, CollectiveError)
    assert "an earlier collective broke: rank 1 is gone" in str(error)


def test_in_process_collective_ends_on_wrong_message() -> None:
    class Late:
        """Counts one collective more than the others."""

        def __init__(self, transport: InProcess) -> None:
            self._transport = transport

        def __getattr__(self, name: str) -> Any:
            return getattr(self._transport, name)

        def sender(self, peer: int, header: Header, *content: Any) -> "Ahead":
            return Ahead(self._transport.sender(peer, header, *content))

    class Ahead:
        def __init__(self, line: Line) -> None:
            self._line = line
            self.wait = line.wait

        def begin(self, step: int, data: Array) -> None:
            self._line.begin(step + 1, data)

    def work(transport: InProcess) -> None:
        own: Any = Late(transport) if transport.rank == 0 else transport
        Communicator(own, timeout=PATIENCE).run(Ring(3), np.ones(9))

    errors = failures(3, work)
    assert len(errors) == 3
    (violation,) = [error for error in errors if isinstance(error, ScheduleViolationError)]
    assert violation.name == "step"
    assert all("step: expected" in str(error) for error in errors)


def test_in_process_allgather_delivers_every_contribution() -> None:
    with pytest.raises(ExceptionGroup) as raised:
        run_schedule(Ring(3), [np.zeros(4), np.zeros(5), np.zeros(4, np.float32)])
    errors = raised.value.exceptions
    assert [type(error) for error in errors] == [CollectiveInputError] * 3
    assert {str(error) for error in errors} == {
        "ranks bring different numbers or types of elements: 4 of float64 on rank 0; 5 of float64 "
        "on rank 1; 4 of float32 on rank 2"
    }


def test_schedule_for_another_world_is_refused() -> None:
    def work(transport: InProcess) -> None:
        Communicator(transport, timeout=PATIENCE).run(Ring(3), np.ones(4))

    assert [type(error) for error in failures(2, work)] == [ScheduleError] * 2
