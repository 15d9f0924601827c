"""Ranks wait for each other before they join, and say who is missing."""

import threading
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from support.ports import bound
from support.waiting import PATIENCE

from trainhall.distributed import process_group
from trainhall.distributed.environment import RankEnvironment
from trainhall.distributed.process_group import GroupSupersededError, JoinError, call_roll


def test_roll_call_accepts_any_order() -> None:
    store = dist.HashStore()
    others = [
        threading.Thread(target=call_roll, args=(store, rank, 3, timedelta(seconds=30)))
        for rank in (2, 0)
    ]
    for other in others:
        other.start()
    call_roll(store, 1, 3, timedelta(seconds=30))
    for other in others:
        other.join(PATIENCE)
        assert not other.is_alive()


def test_roll_call_names_missing_ranks() -> None:
    store = dist.HashStore()
    for rank in (0, 2):
        with pytest.raises(JoinError) as raised:
            call_roll(store, rank, 4, timedelta(milliseconds=50))
    assert str(raised.value).startswith("ranks 1, 3 did not join within 0.05 s")


class SilentStore(dist.HashStore):
    """Its host has lost power: no question is answered any more."""

    def __init__(self) -> None:
        super().__init__()
        self.power = threading.Event()

    def check(self, keys: list[str]) -> bool:
        self.power.wait()
        return False


def test_newer_group_is_joined_despite_dead_store() -> None:
    store = SilentStore()
    try:
        with pytest.raises(GroupSupersededError):
            call_roll(store, 0, 2, timedelta(minutes=5), lambda: True)
    finally:
        store.power.set()


def test_newer_group_is_joined_without_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")  # `join` would choose one for the whole process
    monkeypatch.setattr(process_group, "_REACH_TIMEOUT", timedelta(seconds=0.2))
    with bound() as silent, pytest.raises(GroupSupersededError):
        process_group.join(
            rank_0_of_2(silent.getsockname()[1]),
            device=torch.device("cpu"),
            namespace="2",
            superseded=lambda: True,
        )


@pytest.mark.parametrize("is_known", [False, True])
def test_newer_group_is_joined_after_rank_died(
    monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setattr(process_group, "_SLOW_SECONDS", 3600 if is_known else 0.1)
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    server.set("secret/2/here/1", "")
    called = server.num_keys() + 1
    with pytest.raises(GroupSupersededError):
        process_group.join(
            rank_0_of_2(server.port),
            device=torch.device("cpu"),
            namespace="2",
            # Behind its own call rank 0 tells its address, and waits for that of rank 1.
            superseded=lambda: server.num_keys() > called,
            has_lost=lambda: is_known,
        )


def test_call_without_the_prefix_is_no_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a stranger who reaches the store, and guesses a job's id."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    server.set("2/here/1", "")
    called = server.num_keys() + 1
    seen: list[int] = []

    def superseded() -> bool:
        seen.append(server.num_keys())
        return seen.count(called) > 20  # time enough for an address to follow

    with pytest.raises(GroupSupersededError):
        process_group.join(
            rank_0_of_2(server.port),
            device=torch.device("cpu"),
            namespace="2",
            superseded=superseded,
        )
    assert max(seen) == called, "its address follows its own call"


def rank_0_of_2(port: int) -> RankEnvironment:
    return RankEnvironment(
        rank=0,
        local_rank=0,
        world_size=2,
        local_world_size=1,
        master_addr="127.0.0.1",
        master_port=port,
        store_prefix="secret/",
    )
