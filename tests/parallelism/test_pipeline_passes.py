"""What the planner takes a rank of a pipeline to do in a step."""

from collections import Counter
from typing import get_args

import pytest

from trainhall.parallelism.degrees import STAGES_PER_RANK, BadDegrees, Schedule, check_schedule
from trainhall.parallelism.plan.stages import Pass, passes


@pytest.mark.parametrize("schedule", get_args(Schedule))
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_every_microbatch_goes_once_through_each_stage_and_then_back(
    schedule: Schedule, ranks: int
) -> None:
    tried = 0
    for microbatches in range(ranks, 4 * ranks):
        try:
            check_schedule(schedule, ranks, microbatches)
        except BadDegrees:
            continue
        tried += 1
        wanted = Counter(
            Pass(forward, chunk, microbatch)
            for forward in (True, False)
            for chunk in range(STAGES_PER_RANK[schedule])
            for microbatch in range(microbatches)
        )
        for place in range(ranks):
            order = passes(schedule, ranks, place, microbatches)
            assert Counter(order) == wanted
            gone = set()
            for each in order:
                if each.forward:
                    gone.add((each.chunk, each.microbatch))
                else:
                    assert (each.chunk, each.microbatch) in gone
    assert tried > ranks
