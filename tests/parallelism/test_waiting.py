"""Waits within a step's passes are measured, and count as communication."""

import json
from typing import Any

import pytest
from support.cluster.attempts import RankServer


@pytest.fixture(scope="module")
def measured(ranks: RankServer, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("waits")
    assert ranks.call("support.ranks.waiting:step", 2, folder) == [0, 0]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize(
    ("strategy", "exchanges"),
    [
        # Of three layers: the weights forward and backward, and the gradients.
        ("fsdp", 3 + 3 + 3),
        # A sum behind the rows, and one of the gradient before the columns.
        ("tensor", 1 + 1),
    ],
)
def test_early_rank_counts_its_wait(
    measured: list[dict[str, Any]], strategy: str, exchanges: int
) -> None:
    early, late = (rank[strategy] for rank in measured)
    assert early["tells"]
    assert late["tells"]
    assert len(early["waited"]) == len(late["waited"]) == exchanges
    (continued,) = late["continued"]
    index = next(i for i, (begun, _) in enumerate(late["waited"]) if begun >= continued)
    begun, ended = early["waited"][index]
    assert begun < continued < ended
