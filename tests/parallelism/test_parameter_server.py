"""Parameter servers: how parameters are shared, and failures of ranks."""

from pathlib import Path

import pytest
from support.cluster.attempts import RankServer
from torch import nn

from trainhall.parallelism.degrees import Degrees, DegreesError, solve
from trainhall.parallelism.parameter_server import deal

JOB = {
    "task": {"name": "digits", "params": {"hidden": [16]}},
    "resources": {"workers": 3},
    "parallelism": {"strategy": "parameter_server"},
    "training": {"steps": 4, "global_batch_size": 48},
}


def test_parameter_servers_share_parameters_evenly() -> None:
    model = nn.Sequential(nn.Linear(100, 10), nn.Linear(50, 10), nn.Linear(40, 10))
    shares = deal(dict(model.named_parameters()), 2)
    assert shares == [["0.weight"], ["1.weight", "2.weight", "0.bias", "1.bias", "2.bias"]]
    with pytest.raises(
        DegreesError, match="6 parameters are too few for 7 servers; give at most 6"
    ):
        deal(dict(model.named_parameters()), 7)


def test_servers_are_some_of_the_workers() -> None:
    assert solve("parameter_server", 4, {}) == Degrees(data=3, servers=1)
    assert solve("parameter_server", 5, {"data": 3}, servers=2).world_size == 5


@pytest.mark.parametrize(
    ("workers", "data", "servers", "field", "words"),
    [
        (2, None, 2, "servers", "with 2 servers, 0 of 2 workers are left to train; give at most 1"),
        (3, None, 5, "servers", "with 5 servers, 0 of 3 workers are left to train; give at most 2"),
        (1, None, None, "servers", "needs at least 2 workers, one of them a server"),
        (4, 4, 1, "data", "4 workers - 1 servers = 3 train, not 4"),
    ],
)
def test_parameter_server_needs_workers(
    workers: int, data: int | None, servers: int | None, field: str, words: str
) -> None:
    with pytest.raises(DegreesError) as caught:
        solve("parameter_server", workers, {"data": data}, servers)
    assert caught.value.field == field
    assert words in str(caught.value)
    with pytest.raises(DegreesError, match="strategy ddp has no servers"):
        solve("ddp", workers, {}, servers or 1)


def test_parameter_server_detects_a_wrong_step(ranks: RankServer, tmp_path: Path) -> None:
    assert ranks.call("support.ranks.parameter_server:lost_step", 2, tmp_path) == [0, 0]
    intact, *messages = (tmp_path / "messages.txt").read_text().splitlines()
    assert intact == "7"
    waited = "rank 1 waited for the gradients of rank 0 for step 5, but got "
    lost = ": the ranks are out of sync"
    assert messages == [
        f"{waited}the gradients of rank 0 for step 4{lost}",
        f"{waited}the weights of rank 0 for step 5{lost}",
    ]


@pytest.mark.parametrize(
    ("who", "codes", "reported_by", "words"),
    [
        ("dead_worker", [1, -9, 1], 2, "could not receive gradients from rank 1 for step 2"),
        ("dead_server", [1, 1, -9], 0, "could not send gradients to rank 2 for step 2"),
    ],
)
def test_parameter_server_ends_when_rank_ends(
    ranks: RankServer, tmp_path: Path, who: str, codes: list[int], reported_by: int, words: str
) -> None:
    attempt = ranks.run(tmp_path, JOB, function=f"support.ranks.parameter_server:{who}")
    assert attempt.codes == codes
    assert words in attempt.event("failure", reported_by)["message"]
