"""Incidents: what failed, what was done, and how long each part took."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from trainhall.cluster.jobs.incidents import incidents_of, newest_incident
from trainhall.cluster.jobs.views import attempt_view
from trainhall.cluster.lifecycle.generations import note_first_step
from trainhall.db.documents import Allocation, GenerationRecord, NodeAllocation
from trainhall.db.models import Attempt
from trainhall.training.link.failure import Cause, Failure

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def failed(seconds: float, **more: Any) -> dict[str, Any]:
    """A failure as it is stored."""
    failure = Failure(message="rank 1 was ended by SIGKILL", rank=1, time=at(seconds).timestamp())
    return failure.model_copy(update={"cause": Cause.KILLED, **more}).model_dump(mode="json")


ALONE = Allocation([NodeAllocation("a")])


def attempt(number: int, started: float, **columns: Any) -> Attempt:
    given: dict[str, Any] = {
        "job_id": "job", "number": number, "generation": 1, "state": "failed", "reason": "x",
        "world_size": 2, "allocation": Allocation([NodeAllocation("a"), NodeAllocation("other")]),
        "started_at": at(started), "generations": (), "node_outcomes": {},
        "began": {}, "failure": None, "finished_at": None, "stopping_at": None,
    }  # fmt: skip
    return Attempt(**{**given, **columns})


def test_incident_of_replaced_attempt_has_every_phase() -> None:
    first = attempt(
        1, 0, failure=failed(100, step=132), finished_at=at(100.9),
        node_outcomes={"a": {"ended_at": at(100.5).timestamp()}},
    )  # fmt: skip
    second = attempt(2, 101.5, state="running")
    note_first_step(second, 1, at(103.5).timestamp(), at(104).timestamp(), 121)
    (incident,) = incidents_of(first, second)
    assert incident.detect_seconds == 0.5
    assert incident.regroup_seconds == 1.0
    assert incident.load_seconds == 2.0
    assert incident.step_seconds == 0.5
    assert incident.total_seconds == 4.0
    assert incident.steps_redone == 12
    assert incident.done == "attempt 2 replaced it"
    assert newest_incident([first, second], 1) == incident
    assert incident.summary() == (
        "recovered from killed: detected in 0.5 s, regrouped in 1 s, loaded in 2 s, "
        "next step after 0.5 s, 12 steps repeated"
    )


def test_incident_of_a_script_has_its_repeated_steps() -> None:
    first = attempt(1, 0, failure=failed(100, step=262), finished_at=at(101))
    second = attempt(2, 102, state="running", first_step=201)
    (incident,) = incidents_of(first, second)
    assert incident.steps_redone == 62
    assert incident.times == "detected in 1 s, regrouped in 1 s, 62 steps repeated"


def test_incident_omits_unknown_times() -> None:
    only = attempt(1, 0, failure=failed(10), finished_at=at(11))
    (incident,) = incidents_of(only, None)
    assert incident.detect_seconds == 1.0
    assert incident.regroup_seconds is None
    assert incident.total_seconds is None
    assert incident.steps_redone is None
    assert incident.times == "detected in 1 s"
    assert incident.done == "the attempt ended"
    assert newest_incident([only], 1) is None
    assert incidents_of(attempt(1, 0), None) == []


@pytest.mark.parametrize("time", [1e300, -1e300, float("nan")])
def test_incident_omits_an_impossible_time_of_a_host(time: float) -> None:
    only = attempt(1, 0, failure=failed(10, time=time), finished_at=at(11))
    (incident,) = incidents_of(only, None)
    assert incident.happened_at is None
    assert incident.times == ""


def test_incident_shows_long_times_in_minutes() -> None:
    first = attempt(1, 0, failure=failed(0), finished_at=at(125.3))
    (incident,) = incidents_of(first, attempt(2, 184.7, state="running"))
    assert incident.times == "detected in 2 min 5 s, regrouped in 59 s"


def test_attempt_view_keeps_messages_of_unknown_failures() -> None:
    unknown = {"message": "it fell", "cause": "of a later version", "rank": "all"}
    records = (
        GenerationRecord(1, at(0), "x", 2, ALONE),
        GenerationRecord(2, at(5), "x", 1, ALONE, unknown),
    )
    failed_attempt = attempt(1, 0, generations=records, failure=unknown, reason_code="failed")
    view = attempt_view(failed_attempt, None)
    assert view.failure is not None
    assert (view.failure.message, view.failure.cause) == ("it fell", Cause.UNKNOWN)
    assert [record.failure for record in view.generations] == [None, view.failure]
    assert [incident.failure for incident in view.timeline] == [view.failure, view.failure]


def test_incident_is_detected_when_node_is_lost() -> None:
    lost = attempt(
        1, 0, state="lost", failure=failed(10, cause=Cause.NODE_LOST), finished_at=at(100),
        node_outcomes={"other": {"ended_at": at(20).timestamp()}},
    )  # fmt: skip
    (incident,) = incidents_of(lost, None)
    assert incident.detect_seconds == 90.0


def test_incident_ignores_reports_of_left_out_host() -> None:
    """Its ranks had ended long before."""
    first = attempt(
        1, 0, failure=failed(100), finished_at=at(101), allocation=ALONE,
        node_outcomes={
            "left": {"ended_at": at(20).timestamp()}, "a": {"ended_at": at(100.5).timestamp()},
        },
    )  # fmt: skip
    (incident,) = incidents_of(first, None)
    assert incident.detect_seconds == 0.5


@pytest.mark.parametrize("cause", [Cause.PREEMPTED, Cause.RESIZED])
def test_incident_of_moved_job_excludes_queue_time(cause: Cause) -> None:
    moved = failed(10, cause=cause, step=40, time=None)
    first = attempt(1, 0, state="paused", failure=moved, finished_at=at(11))
    second = attempt(2, 3600, state="running")
    note_first_step(second, 1, at(3601).timestamp(), at(3602).timestamp(), 41)
    (incident,) = incidents_of(first, second)
    assert (incident.detect_seconds, incident.regroup_seconds) == (None, None)
    assert (incident.load_seconds, incident.steps_redone) == (1.0, 0)


def test_incident_covers_regrouping_in_place() -> None:
    def generation(number: int, seconds: float, size: int, failure: Any = None) -> GenerationRecord:
        return GenerationRecord(number, at(seconds), "x", size, Allocation(), failure)

    one = attempt(
        1, 0, state="running", generation=3,
        generations=(
            generation(1, 0, 4), generation(2, 50.2, 3, failed(50, step=40)), generation(3, 90, 4),
        ),
    )  # fmt: skip
    note_first_step(one, 2, at(50.4).timestamp(), at(50.5).timestamp(), 41)
    (incident,) = incidents_of(one, None)
    assert (incident.generation, incident.steps_redone) == (1, 0)
    assert "regrouped in place as generation 2, 4 → 3 ranks" in incident.done
    assert newest_incident([one], 2) == incident
    # Growth followed no failure.
    assert newest_incident([one], 3) is None


def test_differing_clocks_give_no_negative_times() -> None:
    ahead = attempt(1, 0, failure=failed(20), finished_at=at(19))
    (incident,) = incidents_of(ahead, None)
    assert incident.detect_seconds == 0.0
