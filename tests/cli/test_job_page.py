"""The page that `trainhall show` prints of a job."""

from typing import Any

import pytest

from trainhall.cli import jobs


def test_what_is_told_of_checkpoints_leaves_room_for_the_rest() -> None:
    kinds = ["state", "failure", *["checkpoint"] * 20, "note", *["checkpoint"] * 30]
    events = [{"seq": seq, "kind": kind} for seq, kind in enumerate(kinds)]
    shown = [(event["seq"], event["kind"]) for event in jobs._recent(events)]
    assert shown == [
        (0, "state"), (1, "failure"), (22, "note"), (51, "checkpoint"), (52, "checkpoint")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (None, "ddp"),
        ({"strategy": "fsdp", "shard": 2, "data": 2}, "fsdp, data 2 × shard 2"),
        (
            {"strategy": "pipeline", "pipeline": 4, "data": 1, "tensor": None},
            "pipeline, pipeline 4",
        ),
        ({"strategy": "auto"}, "auto"),
    ],
)
def test_the_strategy_is_told_with_its_degrees(asked: dict[str, Any] | None, told: str) -> None:
    spec = {"task": {"name": "digits"}} | ({"parallelism": asked} if asked else {})
    assert jobs._strategy({"spec": spec}) == told
