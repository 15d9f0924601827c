"""The planner's order of a pipeline rank's passes."""

from collections import Counter
from itertools import pairwise
from typing import get_args

import pytest
from torch.distributed.pipelining import schedules

from trainhall.parallelism.degrees import (
    SPLIT,
    STAGES_PER_RANK,
    DegreesError,
    Schedule,
    check_schedule,
)
from trainhall.parallelism.pipelining.pipeline import SCHEDULES
from trainhall.parallelism.plan.pass_order import Kind, Pass, passes, turn_of

KINDS: dict[schedules._ComputationType, Kind] = {
    schedules._ComputationType.FORWARD: "forward",
    schedules._ComputationType.FULL_BACKWARD: "backward",
    schedules._ComputationType.BACKWARD_INPUT: "input",
    schedules._ComputationType.BACKWARD_WEIGHT: "weight",
}


@pytest.mark.parametrize("schedule", get_args(Schedule))
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_pipeline_passes_cover_every_microbatch_once(schedule: Schedule, ranks: int) -> None:
    tried = 0
    for microbatches in range(ranks, 4 * ranks):
        try:
            check_schedule(schedule, ranks, microbatches)
        except DegreesError:
            continue
        tried += 1
        splits = schedule in SPLIT
        halves: tuple[Kind, ...] = ("input", "weight")
        kinds: tuple[Kind, ...] = ("forward", *(halves if splits else ("backward",)))
        wanted = Counter(
            Pass(kind, chunk, microbatch)
            for kind in kinds
            for chunk in range(STAGES_PER_RANK[schedule])
            for microbatch in range(microbatches)
        )
        for rank in range(ranks):
            order = passes(schedule, ranks, rank, microbatches)
            assert Counter(order) == wanted
            at = {each: index for index, each in enumerate(order)}
            for each in order:
                for before, after in pairwise(kinds):
                    first = Pass(before, each.chunk, each.microbatch)
                    assert at[first] < at[Pass(after, each.chunk, each.microbatch)]
    assert tried > ranks


@pytest.mark.parametrize("schedule", [s for s, stages in STAGES_PER_RANK.items() if stages > 1])
@pytest.mark.parametrize(("ranks", "microbatches"), [(2, 2), (2, 6), (4, 4), (4, 12)])
def test_pipeline_pass_order_matches_training(
    schedule: Schedule, ranks: int, microbatches: int
) -> None:
    built = object.__new__(SCHEDULES[schedule])
    built.pp_group_size = ranks
    built._n_microbatches = microbatches
    built.n_local_stages = STAGES_PER_RANK[schedule]
    built.num_stages = ranks * built.n_local_stages
    built.microbatches_per_round = turn_of(schedule, ranks, microbatches)
    for rank in range(ranks):
        actions = [each for each in built._calculate_single_rank_operations(rank) if each]
        stages = sorted({each.stage_index for each in actions})
        scheduled = [
            Pass(
                KINDS[each.computation_type], stages.index(each.stage_index), each.microbatch_index
            )
            for each in actions
        ]
        assert scheduled == passes(schedule, ranks, rank, microbatches)
