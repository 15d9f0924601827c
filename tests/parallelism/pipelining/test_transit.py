"""Sending beside computation is measured in one of many pipeline steps."""

import json
from typing import Any

import pytest
from support.cluster.attempts import RankServer
from support.ranks.transit import MICROBATCHES, SCHEDULES, STEPS

from trainhall.parallelism.pipelining import transit

Measured = list[dict[str, Any]]


@pytest.fixture(scope="module")
def measured(ranks: RankServer, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    folder = tmp_path_factory.mktemp("transit")
    assert ranks.call("support.ranks.transit:steps", 2, folder) == [0, 0]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_transit_samples_one_step_in_many(measured: Measured, schedule: str) -> None:
    looked_at = range(transit.FIRST, STEPS, transit.EVERY)
    assert list(looked_at) == [transit.FIRST, STEPS - 1]
    for rank in measured:
        of = rank[schedule]
        assert of["tells"]
        assert [n > 0 for n in of["counts"]] == [step in looked_at for step in range(STEPS)]
        assert [hidden is not None for hidden in of["hidden"]] == [n > 0 for n in of["counts"]]
        assert len(set(of["counts"])) == 2  # all messages of a step are reported, or none
    if schedule != "zbv":
        assert measured[0][schedule]["counts"][-1] == MICROBATCHES


def test_transit_during_computation_is_hidden(measured: Measured) -> None:
    early, late = (rank["gpipe"] for rank in measured)
    _, second, *_ = early["last"]
    begun, ended = second
    (continued,) = late["met"]
    assert begun < continued < ended
    hidden, computed = early["hidden"][-1], early["computed"][-1]
    # It was on its way from before the third micro-batch was begun until rank 1 went on.
    assert 0 < hidden <= computed
