"""Schedules over Gloo: the same bits as in the simulator, and an end to every failure.

Each rank is a thread with a process group of its own, but where a process must die.
"""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier
from typing import TypeVar

import numpy as np
import pytest
import torch
from support.cluster.attempts import RankServer
from support.groups import collective as collective_ranks
from support.groups.gloo import gloo_ranks

from trainhall.distributed.collectives.algorithms.registry import NAMES, all_reduce
from trainhall.distributed.collectives.algorithms.ring import Ring, RingAllGather
from trainhall.distributed.collectives.communicator import Communicator
from trainhall.distributed.collectives.errors import (
    CollectiveError,
    CollectiveInputError,
    CollectiveTimeoutError,
    PeerLostError,
)
from trainhall.distributed.collectives.schedule import Schedule
from trainhall.distributed.collectives.simulate import simulate
from trainhall.distributed.gloo import Gloo
from trainhall.distributed.probe import Pairs

PATIENCE = 60.0
"""Seconds; nothing that works takes so long."""
T = TypeVar("T")


def run_ranks(world_size: int, work: Callable[[Gloo], T]) -> list[T]:
    groups = gloo_ranks(world_size, timedelta(seconds=PATIENCE))
    with ThreadPoolExecutor(world_size) as threads:
        return list(threads.map(work, map(Gloo, groups)))


@pytest.mark.parametrize("segment_bytes", [100, 1 << 20])
@pytest.mark.parametrize("world_size", [2, 5])
def test_gloo_matches_the_simulator(world_size: int, segment_bytes: int) -> None:
    arrays = [
        np.random.default_rng(rank).standard_normal(300).astype(np.float32)
        for rank in range(world_size)
    ]

    def work(transport: Gloo) -> list[bytes]:
        communicator = Communicator(transport, timeout=PATIENCE, segment_bytes=segment_bytes)
        found = []
        for name in NAMES:
            tensor = torch.from_numpy(arrays[transport.rank].copy())
            communicator.agree(tensor)
            communicator.run(all_reduce(name, world_size), tensor)
            found.append(tensor.numpy().tobytes())
        return found

    wanted = [simulate(all_reduce(name, world_size), arrays).tensors[0].tobytes() for name in NAMES]
    assert run_ranks(world_size, work) == [wanted] * world_size


def test_types_without_numpy_counterpart_are_added_up() -> None:
    def work(transport: Gloo) -> torch.Tensor:
        tensor = torch.full((10,), 1.5, dtype=torch.bfloat16)
        Communicator(transport, timeout=PATIENCE).run(Ring(3), tensor)
        return tensor

    for tensor in run_ranks(3, work):
        assert tensor.dtype is torch.bfloat16
        assert tensor.eq(4.5).all()


def test_gloo_allgather_delivers_every_contribution() -> None:
    def work(transport: Gloo) -> str:
        with pytest.raises(CollectiveInputError) as raised:
            Communicator(transport, timeout=PATIENCE).agree(torch.zeros(4 + transport.rank))
        return str(raised.value)

    message = (
        "ranks bring different numbers or types of elements: 4 of torch.float32 on rank 0; 5 of "
        "torch.float32 on rank 1"
    )
    assert run_ranks(2, work) == [message] * 2


def test_gloo_timeout_names_rank_round_and_bytes() -> None:
    broken = Barrier(2)

    def work(transport: Gloo) -> str:
        if transport.rank == 1:
            broken.wait(PATIENCE)
            return ""
        with pytest.raises(CollectiveTimeoutError) as raised:
            Communicator(transport, timeout=0.05).run(Ring(2), torch.ones(100))
        broken.wait(PATIENCE)
        return str(raised.value)

    assert run_ranks(2, work)[0] == (
        "rank 0 timed out after 0.05 s: round 0 (reduce-scatter) still had 200 of 200 bytes to get "
        "from rank 1"
    )


@pytest.mark.parametrize(
    ("elements", "kind", "schedule"),
    [
        (90, torch.float32, Ring(2)),  # Gloo by itself would fill a part of the buffer
        (110, torch.float32, Ring(2)),  # and here end the process
        (100, torch.int32, Ring(2)),
        (100, torch.float32, RingAllGather(2)),
    ],
)
def test_gloo_never_adds_an_unexpected_message(
    elements: int, kind: torch.dtype, schedule: Schedule
) -> None:
    def work(transport: Gloo) -> torch.Tensor:
        communicator = Communicator(transport, timeout=0.05)
        own = (schedule, torch.ones(elements, dtype=kind))
        planned, tensor = own if transport.rank else (Ring(2), torch.ones(100))
        with pytest.raises(CollectiveError, match="still had"):
            communicator.run(planned, tensor)
        return tensor

    for tensor in run_ranks(2, work):
        assert tensor.eq(1).all()


def test_gloo_detects_a_missed_collective() -> None:
    def work(transport: Gloo) -> torch.Tensor:
        communicator = Communicator(transport, timeout=0.05)
        if transport.rank == 0:
            communicator.run(Pairs(2, ()), torch.ones(100))  # nobody sends anything in it
        tensor = torch.ones(100)
        with pytest.raises(CollectiveError, match="still had"):
            communicator.run(Ring(2), tensor)
        return tensor

    for tensor in run_ranks(2, work):
        assert tensor.eq(1).all()


def test_gloo_peers_notice_a_leaving_rank() -> None:
    left = Barrier(3)

    def work(transport: Gloo) -> str:
        communicator = Communicator(transport, timeout=PATIENCE)
        communicator.run(Ring(3), torch.ones(100))
        if transport.rank == 1:
            transport.leave("enough")
        left.wait(PATIENCE)
        if transport.rank == 1:
            return ""
        with pytest.raises(PeerLostError) as raised:
            communicator.run(Ring(3), torch.ones(100))
        return str(raised.value)

    _, *others = sorted(run_ranks(3, work))
    for message in others:
        assert re.match(
            r"rank \d is gone \(.+\): round \d \(.+\) still had \d+ of \d+ bytes", message
        )


def test_gloo_collective_ends_when_rank_is_killed(ranks: RankServer, tmp_path: Path) -> None:
    codes = ranks.call("support.groups.collective:lose_one", 4, tmp_path)
    assert codes == [0, -9, 0, 0]
    messages = {path.stem: path.read_text(encoding="utf-8") for path in tmp_path.glob("*.txt")}
    assert set(messages) == {str(rank) for rank in range(4) if rank != collective_ranks.DIES}
    assert messages["2"].startswith("PeerLostError: rank 1 is gone (")
    for text in messages.values():
        assert re.match(
            r"PeerLostError: rank \d is gone \([^/]+\): round \d \(reduce-scatter\)", text
        )
        assert "still had 1,000 of 1,000 bytes to" in text
