"""What `trainhall up` and `make run` say of jobs that were there before."""

from typing import Any

from trainhall.cli.server.demo import place_in_queue
from trainhall.cli.server.up import describe_unfinished


class Lists:
    """A client that has these items, whatever is asked of them."""

    def __init__(self, *items: Any) -> None:
        self._items = items

    def items(self, path: str, **asked: Any) -> Any:
        return iter(self._items)


def advice_after(*names: str) -> str | None:
    newest_first: Any = Lists(*({"id": f"id-{n}", "name": n} for n in reversed(names)))
    return describe_unfinished(newest_first)


def test_demo_names_jobs_still_running() -> None:
    assert advice_after() is None
    assert advice_after("a") == "Resuming 1 unfinished job: a (id-a)"
    assert advice_after("a", "b") == "Resuming 2 unfinished jobs: a (id-a), b (id-b)"
    seven = advice_after(*"abcdefg")
    assert seven is not None
    assert seven.endswith("e (id-e) and 2 more")


def test_demo_shows_the_queue_position() -> None:
    queue: Any = Lists({"job_id": "x", "position": 1}, {"job_id": "y", "position": 2})
    assert place_in_queue(queue, {"id": "x"}) is None
    place = place_in_queue(queue, {"id": "y"})
    assert place == (
        "It is number 2 in the queue: 1 job is ahead of it. `trainhall ls --queue` lists them."
    )
    assert place_in_queue(queue, {"id": "placed already"}) is None
