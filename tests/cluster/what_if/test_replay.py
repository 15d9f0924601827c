"""Replays of recorded jobs: what the scheduler does with them, on clusters of one's choice."""

from collections.abc import Sequence
from datetime import timedelta
from threading import Event
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.cluster.facts import NOW, job_facts, node_facts

from trainhall.cluster.lifecycle.states import JobState
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.quotas import Quotas
from trainhall.cluster.what_if.change import AddedNodes, Change
from trainhall.cluster.what_if.compare import compare
from trainhall.cluster.what_if.replay import replay
from trainhall.cluster.what_if.workload import Work, Workload

OPTIONS = ClusterOptions()


def work(number: int, at: float, seconds: float, workers: int = 1, **more: Any) -> Work:
    """A job that comes `at` seconds and holds each of its devices for `seconds`."""
    job = job_facts(
        id=f"job{number}", number=number, workers=workers, attempt=0, state=JobState.QUEUED,
        queued_at=NOW + timedelta(seconds=at), **more,
    )  # fmt: skip
    return Work(job, seconds * workers, waited_seconds=1.0)


def waits(
    works: Sequence[Work], *slots: int, options: ClusterOptions = OPTIONS
) -> dict[str, float]:
    nodes = [node_facts(f"n{number}", count) for number, count in enumerate(slots)]
    found = replay(works, nodes, options).waits
    return {job_id: round(wait, 2) for job_id, wait in found.items()}


def test_jobs_wait_for_those_before_them() -> None:
    three = [work(1, 0, 100), work(2, 10, 100), work(3, 20, 100)]
    assert waits(three, 1) == {"job1": 0, "job2": 90, "job3": 180}
    assert waits(three, 2) == {"job1": 0, "job2": 0, "job3": 80}
    assert waits(three, 3) == {"job1": 0, "job2": 0, "job3": 0}


def test_large_job_is_not_overtaken_for_ever() -> None:
    works = [work(1, 0, 100, 1), work(2, 1, 100, 2), work(3, 2, 1000, 1)]
    assert waits(works, 2) == {"job1": 0, "job2": 99, "job3": 198}


def test_short_job_borrows_what_is_reserved() -> None:
    """The ends of jobs that count steps can be foreseen."""
    works = [
        work(1, 0, 100, 1, total_steps=10),
        work(2, 1, 100, 2),
        work(3, 50, 10, 1, total_steps=10, step_seconds=1.0),
    ]
    assert waits(works, 2) == {"job1": 0, "job2": 99, "job3": 0}


def test_preempted_job_takes_the_rest_later() -> None:
    works = [work(1, 0, 100), work(2, 40, 100, priority=5)]
    assert waits(works, 1) == {"job1": 100, "job2": 0}
    outcome = replay(works, [node_facts(slots=1)], OPTIONS)
    assert round(outcome.held_device_seconds) == 200
    assert round(outcome.span_seconds) == 200


def test_larger_elastic_job_ends_sooner() -> None:
    works = [work(1, 0, 100, 4, sizes=(1, 2, 4)), work(2, 10, 10, 1)]
    assert waits(works, 2) == {"job1": 0, "job2": 190}
    assert waits(works, 4) == {"job1": 0, "job2": 90}


def test_job_that_cannot_start_is_named() -> None:
    outcome = replay([work(1, 0, 100, 3), work(2, 0, 100)], [node_facts(slots=2)], OPTIONS)
    assert outcome.never_started.keys() == {"job1"}
    assert outcome.never_started["job1"].startswith("needs 3 CPU slots; the whole cluster has 2")
    assert outcome.waits == {"job2": 0.0}
    assert replay([], [], OPTIONS).waits == {}


def test_cancelled_replay_ends_early() -> None:
    cancelled = Event()
    cancelled.set()
    outcome = replay([work(1, 0, 100)], [node_facts(slots=1)], OPTIONS, cancelled)
    assert outcome.held_device_seconds == 0.0


def test_change_has_other_nodes_quotas_and_priorities() -> None:
    nodes = [node_facts("a", 1, "cuda"), node_facts("b", 1, "cuda")]
    change = Change(
        add=[AddedNodes(2, 3), AddedNodes(1, 4, "cpu", {"rack": "b"})],
        remove=frozenset({"a"}),
        quotas=Quotas(projects={"vision": 2}),
        project_priorities={"vision": 3},
        user_priorities={"maria": 7},
    )
    changed = change.nodes(nodes)
    assert [(n.name, len(n.devices), n.devices[0].kind) for n in changed] == [
        ("b", 1, "cuda"), ("added-1-1", 3, "cuda"), ("added-1-2", 3, "cuda"),
        ("added-2-1", 4, "cpu"),
    ]  # fmt: skip
    assert changed[-1].labels == {"rack": "b"}
    present = ClusterOptions(quotas=Quotas(projects={"vision": 9, "text": 1}))
    assert change.options(present).quotas.projects == {"vision": 2, "text": 1}
    works = change.work([
        work(1, 0, 1, project="vision"), work(2, 0, 1, project="vision", user="maria"),
        work(3, 0, 1, priority=1),
    ])  # fmt: skip
    assert [each.job.priority for each in works] == [3, 7, 1]


def test_comparison_counts_the_jobs_of_its_days() -> None:
    works = [
        work(1, 0, 100), work(2, 10, 100, project="vision"), work(3, 20, 100, user="maria"),
    ]  # fmt: skip
    since = NOW + timedelta(seconds=5)
    workload = Workload(tuple(works), left_out=2, is_cut=False)
    change = Change(add=[AddedNodes(1, 1)])
    found = compare(workload, [node_facts(slots=1)], OPTIONS, change, since, 30)
    assert (found.jobs, found.left_out, found.is_cut) == (2, 2, False)
    assert (found.before.devices, found.after.devices) == ({"cpu": 1}, {"cpu": 2})
    assert found.recorded is not None
    assert found.recorded.mean == 1.0
    assert found.before.waits is not None
    assert found.after.waits is not None
    assert [round(found.before.waits.mean), round(found.before.waits.max)] == [135, 180]
    assert [round(found.after.waits.mean), round(found.after.waits.max)] == [40, 80]
    assert (round(found.before.utilization), round(found.after.utilization)) == (100, 75)
    assert [(each.kind, each.name, each.jobs) for each in found.accounts] == [
        ("project", "vision", 1), ("user", "maria", 1),
    ]  # fmt: skip


def test_waits_are_of_jobs_that_start_on_both() -> None:
    """The job that waited longest starts with no change; a mean without it would look better."""
    works = [work(1, 0, 100), work(2, 10, 100, 2, project="vision"), work(3, 20, 100)]
    workload = Workload(tuple(works), left_out=0, is_cut=False)
    nodes = [node_facts("a"), node_facts("b")]
    change = Change(remove=frozenset({"b"}))
    found = compare(workload, nodes, OPTIONS, change, NOW, 30)
    assert (found.jobs, found.compared, found.no_longer_started) == (3, 2, 1)
    assert found.warning == (
        "1 of 3 jobs would never start with the changes, but starts without them. "
        "The waits leave it out."
    )
    assert (found.before.never_started, found.after.never_started) == (0, 1)
    (cause,) = found.after.causes
    assert cause.jobs == 1
    assert cause.reason.startswith("needs 2 CPU slots; the whole cluster has 1 CPU slot")
    assert found.before.waits is not None
    assert found.after.waits is not None
    assert (round(found.before.waits.mean), round(found.after.waits.mean)) == (90, 40)
    (vision,) = found.accounts
    assert (vision.never_started_before, vision.never_started_after) == (0, 1)
    assert (vision.before, vision.after) == (None, None)
    quotas = Change(quotas=Quotas(projects={"vision": 1}))
    less = compare(workload, nodes, OPTIONS, quotas, NOW, 30)
    assert less.no_longer_started == 1
    assert "raise `server.quotas.projects.vision`" in less.after.causes[0].reason
    back = compare(workload, nodes[:1], OPTIONS, Change(add=[AddedNodes(1, 1)]), NOW, 30)
    assert (back.no_longer_started, back.warning) == (0, None)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 50), st.integers(1, 30), st.integers(1, 4), st.integers(0, 2),
            st.booleans(),
        ),
        max_size=12,
    ),
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
)  # fmt: skip
def test_every_possible_job_runs_to_its_end(
    jobs: list[tuple[int, int, int, int, bool]], slots: list[int]
) -> None:
    works = [
        work(number, at, seconds, workers, priority=priority, total_steps=10 if counts else None)
        for number, (at, seconds, workers, priority, counts) in enumerate(sorted(jobs), start=1)
    ]
    nodes = [node_facts(f"n{number}", count) for number, count in enumerate(slots)]
    outcome = replay(works, nodes, OPTIONS)
    possible = {each.job.id for each in works if each.job.workers <= sum(slots)}
    assert outcome.waits.keys() == possible
    assert outcome.never_started.keys() == {each.job.id for each in works} - possible
    assert all(wait >= 0 for wait in outcome.waits.values())
    needed = sum(each.device_seconds for each in works if each.job.id in possible)
    assert abs(outcome.held_device_seconds - needed) < 0.5
