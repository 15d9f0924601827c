"""Our algorithms as DDP's communication hook: the mean, and an end to every failure."""

import re
from pathlib import Path

import pytest
import torch
from support.cluster.attempts import RankServer
from support.ranks.hook import ALGORITHMS, DIES, plain_model
from torch import nn

from trainhall.distributed.collectives.errors import CollectiveInputError
from trainhall.distributed.compression.interface import Dense
from trainhall.parallelism.data_parallel.hook import GradientHook


def test_hook_averages_and_leaves_no_thread(ranks: RankServer, tmp_path: Path) -> None:
    assert ranks.call("support.ranks.hook:average", 3, tmp_path) == [0, 0, 0]
    sent = {}
    for algorithm in ALGORITHMS:
        buckets, sent[algorithm] = map(int, (tmp_path / algorithm).read_text().split())
        assert buckets > 2
    whole = sum(p.nbytes for p in plain_model().parameters())
    for algorithm in ("native", "ring"):
        assert sent[algorithm] == pytest.approx(2 * 2 / 3 * whole, rel=0.02)
    assert sent["naive"] == 2 * whole


def test_hosts_may_have_unequally_many_ranks(ranks: RankServer, tmp_path: Path) -> None:
    assert ranks.call("support.ranks.hook:hosts", 4, tmp_path) == [0] * 4
    assert not list(tmp_path.glob("*.txt"))
    (tmp_path / "odd").touch()
    assert ranks.call("support.ranks.hook:hosts", 4, tmp_path) == [0] * 4
    message = (
        "LOCAL_RANK and LOCAL_WORLD_SIZE of 4 ranks make no hosts: a host of 3 would have the "
        "ranks 0 to 2, numbered from 0, but rank 0 has 0 of 3, rank 1 has 1 of 3, rank 2 has 0 of 2"
    )
    assert [(tmp_path / f"{rank}.txt").read_text() for rank in range(4)] == [message] * 4


def test_hook_ends_backward_when_rank_dies(ranks: RankServer, tmp_path: Path) -> None:
    assert ranks.call("support.ranks.hook:lose_one", 4, tmp_path) == [0, -9, 0, 0]
    messages = {path.stem: path.read_text(encoding="utf-8") for path in tmp_path.glob("*.txt")}
    assert set(messages) == {str(rank) for rank in range(4) if rank != DIES}
    assert messages["2"].startswith("PeerLostError: rank 1 is gone (")
    for text in messages.values():
        assert re.match(r"PeerLostError: rank \d is gone \([^/]+\): round \d ", text), text
        assert re.search(r"still had [\d,]+ of [\d,]+ bytes to", text), text


def test_hook_reports_mismatched_gradients_on_all_ranks(ranks: RankServer, tmp_path: Path) -> None:
    assert ranks.call("support.ranks.hook:differ", 2, tmp_path) == [0, 0]
    message = (
        "ranks bring different numbers or types of elements: 4 of torch.float32 on rank 0; 5 of "
        "torch.float32 on rank 1"
    )
    for algorithm in ("tree", "native"):
        assert [(tmp_path / f"{algorithm}{r}.txt").read_text() for r in range(2)] == [message] * 2


def test_gradients_that_are_no_real_numbers_are_refused() -> None:
    weight = nn.Parameter(torch.zeros(2, dtype=torch.complex64))
    with pytest.raises(
        CollectiveInputError, match=r"weight is of torch.complex64, but only floating-point"
    ):
        GradientHook(None, Dense(), {"weight": weight}, torch.device("cpu"))  # type: ignore[arg-type]
