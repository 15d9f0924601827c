"""Ranks wait for each other before they join, and say who is missing."""

import threading
from datetime import timedelta

import pytest
import torch.distributed as dist

from trainhall.distributed.process_group import NotJoined, call_roll


def test_all_come_in_any_order() -> None:
    store = dist.HashStore()
    others = [
        threading.Thread(target=call_roll, args=(store, rank, 3, timedelta(seconds=30)))
        for rank in (2, 0)
    ]
    for other in others:
        other.start()
    call_roll(store, 1, 3, timedelta(seconds=30))
    for other in others:
        other.join(30)
        assert not other.is_alive()


def test_who_is_missing_is_named() -> None:
    store = dist.HashStore()
    for rank in (0, 2):
        with pytest.raises(NotJoined) as told:
            call_roll(store, rank, 4, timedelta(milliseconds=50))
    assert str(told.value).startswith("ranks 1, 3 did not come within 0.05 s")
