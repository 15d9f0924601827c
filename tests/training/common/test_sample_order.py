"""The order of samples: each once per epoch, on any number of ranks."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainhall.training.common.sample_order import (
    SamplePositionError,
    Sampler,
    TooFewSamplesError,
    epoch_order,
    eval_shard,
)

SEEDS = st.integers(0, 2**63 - 1)


@given(st.integers(1, 3000), SEEDS, st.integers(0, 100))
def test_epoch_holds_every_sample_once(size: int, seed: int, epoch: int) -> None:
    assert sorted(epoch_order(size, seed, epoch, 0, size)) == list(range(size))


@given(st.integers(1, 10**8), SEEDS, st.data())
def test_sample_order_slices_match(size: int, seed: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, size - 1))
    stop = data.draw(st.integers(start, min(size, start + 50)))
    middle = data.draw(st.integers(start, stop))
    whole = epoch_order(size, seed, 0, start, stop)
    parts = [epoch_order(size, seed, 0, start, middle), epoch_order(size, seed, 0, middle, stop)]
    assert np.concatenate(parts).tolist() == whole.tolist()
    assert all(0 <= sample < size for sample in whole)


def test_orders_look_random() -> None:
    orders = np.stack([epoch_order(1000, seed, 0, 0, 1000) for seed in range(200)])
    # The mean of 200 draws from 0…999 has a standard deviation of 20 at each position.
    assert abs(orders.mean(axis=0) - 499.5).max() < 100
    assert len({tuple(order) for order in orders}) == 200
    assert epoch_order(1000, 0, 1, 0, 1000).tolist() != orders[0].tolist()
    neighbours = np.corrcoef(orders[:, :-1].ravel(), orders[:, 1:].ravel())[0, 1]
    assert abs(neighbours) < 0.02


def test_sample_order_is_pinned() -> None:
    """A resumed job must not see another order after an upgrade."""
    assert epoch_order(10, 7, 0, 0, 10).tolist() == [9, 2, 6, 7, 1, 4, 3, 5, 8, 0]


@given(st.sampled_from([1, 2, 3, 4, 6]), st.sampled_from([1, 2]), SEEDS)
def test_sampler_batches_ignore_world_size(world: int, rounds: int, seed: int) -> None:
    one = Sampler(size=50, batch=24, seed=seed)
    many = [Sampler(size=50, batch=24, seed=seed) for _ in range(world)]
    for _ in range(5):
        (whole,) = one.next_batch(0, 1, 1)
        shares = [s.next_batch(rank, world, rounds) for rank, s in enumerate(many)]
        assert all(len(share) == rounds for share in shares)
        assert torch.cat([part for share in shares for part in share]).equal(whole)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 30))
def test_restored_sampler_continues(size: int, batch: int, steps: int) -> None:
    if batch > size:
        with pytest.raises(TooFewSamplesError, match=f"give at most {size}"):
            Sampler(size, batch, 0)
        return
    one, other = Sampler(size, batch, 0), Sampler(size, batch, 0)
    for _ in range(steps):
        one.next_batch(0, 1, 1)
    other.restore(one.state())
    assert [b.tolist() for b in one.next_batch(0, 1, 1)] == [
        b.tolist() for b in other.next_batch(0, 1, 1)
    ]
    with pytest.raises(SamplePositionError, match="same data"):
        Sampler(size + 1, batch, 0).restore(one.state())


@given(st.integers(1, 60), st.lists(st.integers(1, 60), min_size=1, max_size=8), SEEDS)
def test_sampler_keeps_epoch_after_batch_size_change(
    size: int, batches: list[int], seed: int
) -> None:
    """But for less than one batch at its end."""
    position: dict[str, Any] | None = None
    dealt: list[int] = []
    epoch = 0
    for batch in [min(batch, size) for batch in batches]:
        sampler = Sampler(size, batch, seed)
        if position is not None:
            sampler.restore(position)
        for _ in range(3):
            (taken,) = sampler.next_batch(0, 1, 1)
            assert len(taken) == batch
            if sampler.epoch > epoch:
                assert size - len(dealt) < batch
                epoch, dealt = epoch + 1, []
            dealt += taken.tolist()
            assert sampler.epoch == epoch
            assert dealt == epoch_order(size, seed, epoch, 0, len(dealt)).tolist()
        position = sampler.state()


def test_sampler_refuses_batch_size_change_when_counting() -> None:
    before = Sampler(100, 10, 0)
    for _ in range(7):
        before.next_batch(0, 1, 1)
    sampler = Sampler(100, 20, 0, counted_by="training.epochs")
    with pytest.raises(
        SamplePositionError,
        match=r"batch_size: 20 was 10 .*training.epochs counts .*; keep 10, give training.steps",
    ):
        sampler.restore(before.state())
    Sampler(100, 10, 0, counted_by="training.epochs").restore(before.state())


def test_epoch_drops_the_last_partial_batch() -> None:
    sampler = Sampler(size=10, batch=4, seed=0)
    dealt = [sampler.next_batch(0, 1, 1)[0].tolist() for _ in range(4)]
    assert sampler.epoch == 1
    for first, second in (dealt[:2], dealt[2:]):
        assert len({*first, *second}) == 8


@given(st.integers(0, 50), st.integers(1, 8), st.integers(1, 9))
def test_eval_shards_cover_the_set_once(size: int, world: int, batch: int) -> None:
    shards = [eval_shard(size, rank, world, batch) for rank in range(world)]
    assert sorted(int(i) for shard in shards for part in shard for i in part) == list(range(size))
