"""What `trainhall show` says of failures."""

from typing import Any

import pytest

from trainhall.cli.jobs.incidents import incidents

JOB = {"id": "j", "attempt": 2}


def incident(**more: Any) -> dict[str, Any]:
    failure = {
        "rank": 1, "node": "gpu-07", "cause": "out_of_memory",
        "message": "rank 1 ran out of memory",
    }  # fmt: skip
    return {
        "generation": 1, "failure": failure, "is_move": False, "done": "attempt 2 replaced it",
        "detected_at": None, "times": "detected in 0.25 s, 1 step repeated", **more,
    }  # fmt: skip


class Coordinator:
    def __init__(self, *timelines: list[Any]) -> None:
        self._attempts = [{"attempt": n, "timeline": t} for n, t in enumerate(timelines, start=1)]

    def items(self, path: str) -> list[Any]:
        assert path == "/training/jobs/j/attempts"
        return self._attempts


def printed_incidents(*timelines: list[Any], job: Any = JOB) -> str | None:
    client: Any = Coordinator(*timelines)
    return incidents(client, job)


def test_incident_shows_action_and_duration() -> None:
    assert printed_incidents([incident()], []) == (
        "Failures\n"
        "  attempt 1: out of memory (rank 1, node gpu-07)\n"
        "    rank 1 ran out of memory\n"
        "    attempt 2 replaced it: detected in 0.25 s, 1 step repeated"
    )


def test_incidents_are_newest_first_and_limited() -> None:
    text = printed_incidents([incident()], [incident(generation=n) for n in (1, 2, 3)])
    assert text is not None
    lines = [line for line in text.splitlines() if line.startswith("  attempt")]
    assert [line.split(":")[0].strip() for line in lines] == [
        "attempt 2, generation 3",
        "attempt 2, generation 2",
        "attempt 2",
    ]
    assert "and 1 earlier" in text


def test_job_without_failures_shows_no_incidents() -> None:
    assert printed_incidents([], []) is None
    assert printed_incidents(job={"id": "j", "attempt": 0}) is None


@pytest.mark.parametrize("cause", ["preempted", "resized"])
def test_preemption_and_moves_are_no_incidents(cause: str) -> None:
    moved = incident(is_move=True)
    moved["failure"] = {**moved["failure"], "cause": cause}
    assert printed_incidents([moved]) is None
