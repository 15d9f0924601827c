"""The scheduler's rules, each held against many clusters and queues: pure functions."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import combinations
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.cluster.facts import NOW
from support.cluster.facts import node_facts as node
from support.cluster.scheduling import (
    attempt,
    busy_clusters,
    cluster,
    job,
    running,
    step,
)
from support.examples import share_of

from trainhall.cluster.lifecycle.reasons import ReasonCode
from trainhall.cluster.lifecycle.states import JobState, NodeState
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.quotas import Quotas
from trainhall.cluster.scheduling.preemption import Candidate, preempted
from trainhall.cluster.scheduling.scheduler import Pass, QueueEntry, schedule
from trainhall.cluster.snapshot.model import ClusterFacts, JobFacts

OPTIONS = ClusterOptions()


def by_id(facts: ClusterFacts, options: ClusterOptions = OPTIONS) -> dict[str, QueueEntry]:
    return {entry.job.id: entry for entry in schedule(NOW, facts, options)}


def granted(entries: Sequence[QueueEntry]) -> list[tuple[str, int]]:
    return [
        (host.node_id, index)
        for entry in entries
        for host in entry.placed or ()
        for index in host.device_indices
    ]


@given(busy_clusters())
def test_scheduler_grants_once_and_all_or_nothing(facts: ClusterFacts) -> None:
    entries = schedule(NOW, facts, OPTIONS)
    taken = granted(entries) + [(g.node_id, g.device_index) for g in facts.grants]
    assert len(taken) == len(set(taken))
    nodes = {n.id: n for n in facts.nodes}
    for entry in entries:
        assert entry.text
        count = sum(len(host.device_indices) for host in entry.placed or ())
        assert count == 0 or count in entry.job.sizes
        assert count in (0, entry.needs.count)
        for host in entry.placed or ():
            its = nodes[host.node_id]
            kinds = {d.index: d.kind for d in its.devices}
            assert its.state is NodeState.READY
            assert {kinds[i] for i in host.device_indices} == {entry.needs.device}


@given(busy_clusters())
def test_selectors_and_one_host_hold(facts: ClusterFacts) -> None:
    nodes = {n.id: n for n in facts.nodes}
    for entry in schedule(NOW, facts, OPTIONS):
        for host in entry.placed or ():
            assert entry.job.selector.items() <= nodes[host.node_id].labels.items()
        assert not (entry.job.one_host and len(entry.placed or ()) > 1)


@given(busy_clusters())
def test_the_same_state_gives_the_same_schedule(facts: ClusterFacts) -> None:
    shuffled = replace(
        facts, jobs=facts.jobs[::-1], grants=facts.grants[::-1], attempts=facts.attempts[::-1]
    )
    assert schedule(NOW, facts, OPTIONS) == schedule(NOW, shuffled, OPTIONS)


@given(busy_clusters(), st.integers(0, 6), st.integers(0, 6))
def test_quotas_are_never_exceeded(facts: ClusterFacts, project: int, user: int) -> None:
    quotas = Quotas(projects={"vision": project}, users={"*": user})
    entries = schedule(NOW, facts, ClusterOptions(quotas=quotas))
    for what, name, limit in (
        ("project", "vision", project), ("user", "ada", user), ("user", "bob", user),
    ):  # fmt: skip
        held = Counter(g.job_id for g in facts.grants)
        before = sum(held[j.id] for j in facts.jobs if getattr(j, what) == name)
        mine = [e for e in entries if getattr(e.job, what) == name]
        assert not granted(mine) or before + len(granted(mine)) <= limit


def test_job_over_quota_blocks_no_other() -> None:
    facts = cluster(
        [node("a", 4)],
        [running("r", 1, {"a": [0]}, user="ada")],
        [job(2, 2, user="ada"), job(3, 3, user="bob"), job(4, 1, user="ada")],
    )
    options = ClusterOptions(quotas=Quotas(users={"ada": 2, "bob": 8}))
    first, second, third = schedule(NOW, facts, options)
    assert first.text == (
        "needs 2 CPU slots; the quota of user ada is 2 devices, of which 1 is in use: job r holds 1"
    )
    assert second.placed is not None
    assert "the quota of user ada" not in third.text
    never = ClusterOptions(quotas=Quotas(projects={"*": 1}))
    (entry,) = schedule(NOW, cluster([node("a", 4)], [], [job(1, 2, project="p")]), never)
    assert entry.never
    assert entry.reason.code is ReasonCode.QUOTA_TOO_SMALL
    assert entry.text == (
        "needs 2 CPU slots; the quota of project p is 1 device, so it can never start: request at "
        "most 1 worker, or ask the administrator to raise `server.quotas.projects.p`"
    )


@pytest.mark.parametrize(
    ("selector", "labels", "reason"),
    [
        ({"gpu": "a100"}, {"gpu": "v100"}, "no node has gpu=a100 (gpu is v100): change"),
        ({"gpu": "a100"}, {"gpu": "a100"}, "its host a has 2 CPU slots"),
    ],
)
def test_unmatched_selector_is_reported(
    selector: dict[str, str], labels: dict[str, str], reason: str
) -> None:
    facts = cluster([node("a", 2, labels=labels), node("b", 9)], [], [job(1, 4, selector=selector)])
    (entry,) = schedule(NOW, facts, OPTIONS)
    assert reason in entry.text
    assert entry.never


def test_containers_run_on_nodes_with_an_engine() -> None:
    nodes = [node("a", 4), node("b", 2, has_containers=True)]
    inside = [job(number, size, in_container=True) for number, size in ((1, 2), (2, 3))]
    placed, large = schedule(NOW, cluster(nodes, [], inside), OPTIONS)
    assert [host.node_name for host in placed.placed or ()] == ["b"]
    assert "needs 3 CPU slots on hosts with a container engine" in large.text
    (nowhere,) = schedule(NOW, cluster(nodes[:1], [], inside[:1]), OPTIONS)
    assert nowhere.never
    assert "node a has no container engine: install Podman or Docker there" in nowhere.text


def test_one_host_job_names_its_host() -> None:
    facts = cluster(
        [node("a", 8), node("b", 8)],
        [running("r", 1, {"a": [0, 1]}), running("s", 2, {"b": [0, 1, 2]})],
        [job(3, 8, one_host=True), job(4, 5)],
    )
    first, second = schedule(NOW, facts, OPTIONS)
    assert first.text == "needs 8 CPU slots on one host; a has 6 of 8 free, job r holds 2"
    assert second.placed is not None, "the other host is not kept"
    assert {host.node_id for host in second.placed} == {"b"}


def test_elastic_job_takes_the_largest_free_size() -> None:
    facts = cluster([node("a", 4), node("b", 3)], [], [job(1, 8, sizes=(2, 4, 6, 8))])
    (entry,) = schedule(NOW, facts, OPTIONS)
    assert sum(len(host.device_indices) for host in entry.placed or ()) == 6


def test_elastic_job_leaves_devices_for_equal_priority() -> None:
    elastic = job(1, 6, sizes=tuple(range(1, 7)))
    impossible = job(2, 9)
    late = job(3, 2, restarts=9, last_ended_at=NOW)
    other_kind = job(4, 1, device="cuda")
    unlendable = (impossible, late, other_kind, job(5, 4, priority=-1, queued_at=NOW))

    def placed(*behind: JobFacts) -> list[int]:
        facts = cluster([node("a", 4), node("b", 2)], [], [elastic, *behind])
        entries = schedule(NOW, facts, OPTIONS)
        return [sum(len(h.device_indices) for h in e.placed or ()) for e in entries]

    assert placed(*unlendable)[0] == 6
    assert placed(job(2, 2)) == [4, 2]
    assert placed(job(2, 1), *unlendable, job(6, 1))[0] == 4
    assert placed(job(2, 6, sizes=tuple(range(1, 7)))) == [5, 1], "of two elastic ones, too"
    assert placed(job(2, 6)) == [1, 0], "what it could use is kept free, as for one that runs"


# Order


def test_queue_order_ages_without_changing() -> None:
    day = timedelta(seconds=OPTIONS.priority_ageing_seconds)
    old = job(1, 1, queued_at=NOW - 2 * day)
    jobs = (job(3, 1, priority=3), job(2, 1, priority=1), old)
    facts = ClusterFacts(jobs=jobs)
    for now in (NOW, NOW + 1000 * day):
        assert [e.job.number for e in schedule(now, facts, OPTIONS)] == [3, 1, 2]


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=8), st.integers(2, 30))
def test_ageing_lets_every_job_run_in_the_end(priorities: list[int], arrivals: int) -> None:
    """One device, and before every pass a new job of the highest priority comes."""
    options = ClusterOptions(priority_ageing_seconds=100.0)
    waiting = [job(n, 1, priority=p) for n, p in enumerate(priorities)]
    now, number = NOW, len(waiting)
    left = set(range(number))
    passes = 0
    while left:
        now += timedelta(seconds=50)
        waiting.append(job(number, 1, priority=5, queued_at=now))
        number += 1
        facts = ClusterFacts(nodes=(node("a", 1),), jobs=tuple(waiting))
        (first,) = [e for e in schedule(now, facts, options) if e.placed]
        waiting.remove(first.job)
        left.discard(first.job.number)
        passes += 1
        assert passes <= 11 * 100 // 50 + len(priorities) + 1


# Reservations and backfill


def test_short_job_may_use_reserved_devices() -> None:
    facts = cluster(
        [node("a", 4)],
        [running("r", 1, {"a": [0, 1]}, seconds_left=600)],
        [
            job(2, 4),
            job(3, 1, total_steps=100, step_seconds=5.0),
            job(4, 1, total_steps=100, step_seconds=7.0),
            job(5, 1),
        ],
    )
    found = by_id(facts)
    assert found["job3"].placed is not None
    assert found["job4"].placed is None, "it would end after 700 s"
    assert found["job5"].placed is None, "its duration is unknown"
    assert found["job5"].text.endswith("waiting for job job2 (4 CPU slots), ahead in the queue")


def test_job_without_a_foreseeable_end_delays_no_pass() -> None:
    runs = running("r", 1, {"a": [0]}, seconds_left=2.0**62)
    assert by_id(cluster([node("a", 1)], [runs], [job(2, 1)]))["job2"].placed is None


def test_unneeded_reserved_devices_are_free() -> None:
    facts = cluster(
        [node("a", 8), node("b", 2)],
        [running("r", 1, {"a": list(range(8))}, seconds_left=600)],
        [job(2, 8), job(3, 2)],
    )
    assert by_id(facts)["job3"].placed is not None


@settings(max_examples=share_of(60))
@given(busy_clusters(estimates=True))
def test_reservation_is_not_delayed_by_backfill(facts: ClusterFacts) -> None:
    """Whatever starts, the first job that waits starts at the latest when it would have, if no
    other had been started."""
    options = ClusterOptions(preemption=False)
    scheduling = Pass(NOW, facts, options)
    entries = scheduling.run()
    if not scheduling.backfill.reservations or scheduling.backfill.reservations[0].at is None:
        return
    first = scheduling.backfill.reservations[0]
    assert first.at is not None
    after = facts
    for entry in entries:
        if entry.placed is not None:
            after = step(after, entry, NOW)
    again = Pass(NOW, after, options)
    again.run()
    assert again.backfill.reservations[0].job.id == first.job.id
    assert again.backfill.reservations[0].at is not None
    assert again.backfill.reservations[0].at <= first.at


def test_large_job_does_not_starve() -> None:
    """Eight devices, small jobs of unknown length that come faster than they end, and one that
    needs all eight."""
    nodes = (node("a", 4), node("b", 4))
    facts = cluster(nodes, [], [job(n, 1) for n in range(20)])
    large = job(1000, 8, queued_at=NOW + timedelta(seconds=1))
    now, started, number = NOW, None, 2000
    ends: dict[str, int] = {}
    for second in range(120):
        now = NOW + timedelta(seconds=second)
        ended = {job_id for job_id, at in ends.items() if at <= second}
        facts = replace(
            facts,
            jobs=tuple(j for j in facts.jobs if j.id not in ended),
            attempts=tuple(a for a in facts.attempts if a.job_id not in ended),
            grants=tuple(g for g in facts.grants if g.job_id not in ended),
        )
        new = [job(number + i, 1, queued_at=now) for i in range(3)]
        number += 3
        facts = replace(facts, jobs=(*facts.jobs, *new, *([large] if second == 1 else [])))
        for entry in schedule(now, facts, OPTIONS):
            if entry.placed is not None:
                facts = step(facts, entry, now)
                ends[entry.job.id] = second + 3 + entry.job.number % 5
                if entry.job.id == large.id:
                    started = second
    assert started is not None
    assert started <= 30, "the twenty before it, and those that ran then"


# Preemption


def test_job_of_lower_priority_is_preempted() -> None:
    facts = cluster(
        [node("a", 4)],
        [running("r", 1, {"a": [0, 1]}), running("s", 2, {"a": [2, 3]})],
        [job(3, 2, priority=1)],
    )
    (entry,) = schedule(NOW, facts, OPTIONS)
    assert entry.text == "needs 2 CPU slots; job s is being preempted for it"
    assert [c.job.id for c in entry.preempted] == ["s"], "it has run for the least time"
    pausing = replace(facts, attempts=(facts.attempts[0], replace(facts.attempts[1], goal="pause")))
    (entry,) = schedule(NOW, pausing, OPTIONS)
    assert entry.preempted == ()
    assert "job s, which is stopping, holds 2" in entry.text


@pytest.mark.parametrize(
    ("options", "other", "mine"),
    [
        (ClusterOptions(preemption=False), {}, {}),
        (OPTIONS, {"preemption": False}, {}),
        (OPTIONS, {"priority": 1}, {}),
        (OPTIONS, {"queued_at": NOW - timedelta(days=3)}, {}),
        (OPTIONS, {}, {"workers": 3, "one_host": True}),
        (OPTIONS, {}, {"workers": 9}),
    ],
)
def test_preemption_spares_some_jobs(
    options: ClusterOptions, other: dict[str, Any], mine: dict[str, Any]
) -> None:
    facts = cluster(
        [node("a", 2), node("b", 2)],
        [running("r", 1, {"a": [0, 1], "b": [0, 1]}, **other)],
        [job(3, **{"workers": 2, "priority": 1, **mine})],
    )
    (entry,) = schedule(NOW, facts, options)
    assert entry.preempted == ()
    assert entry.placed is None


def test_an_elastic_job_shrinks_rather_than_pauses() -> None:
    elastic = running("r", 1, {"a": [0, 1], "b": [0, 1]}, sizes=(1, 2, 3, 4), in_place=True)
    facts = cluster([node("a", 2), node("b", 2)], [elastic], [job(2, 1, priority=1)])
    (entry,) = schedule(NOW, facts, OPTIONS)
    (helper,) = entry.preempted
    assert (helper.keeps, helper.devices) == (3, {"b": (1,)})
    # Until the rank has left, no other job is preempted.
    (lessened,) = facts.attempts
    hosts = (lessened.hosts[0], replace(lessened.hosts[1], devices=(0,)))
    (entry,) = schedule(NOW, replace(facts, attempts=(replace(lessened, hosts=hosts),)), OPTIONS)
    assert entry.preempted == ()


def test_preemption_ignores_jobs_that_cannot_start() -> None:
    """A job ahead of it waits for other hosts' devices as well: no job pauses in vain."""
    facts = cluster(
        [node("a", 4)],
        [running("r", 1, {"a": [0, 1, 2, 3]}, priority=5, queued_at=NOW)],
        [job(2, 4, priority=9, queued_at=NOW), job(3, 1, priority=9, one_host=True)],
    )
    first, second = sorted(schedule(NOW, facts, OPTIONS), key=lambda e: e.position)
    assert [c.job.id for c in first.preempted] == ["r"]
    assert second.preempted == ()


@given(
    st.integers(1, 10),
    st.booleans(),
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.integers(1, 4),
            st.integers(-2, 2),
            st.integers(-3, 3),
            st.booleans(),
        ),
        max_size=6,
    ),
)
# Of an elastic job nothing here, or nothing more, could be given up.
@example(1, False, [(0, 1, 1, 0, True), (0, 1, 0, -1, False)])
@example(1, False, [(0, 1, -2, 0, True)])
@example(2, False, [(0, 1, -1, -2, True), (0, 1, 0, -1, False)])
def test_preemption_is_minimal(
    count: int, one_host: bool, held: list[tuple[int, int, int, int, bool]]
) -> None:
    candidates, used = [], Counter[int]()
    for number, (host, devices, elsewhere, priority, elastic) in enumerate(held):
        indices = tuple(range(used[host], used[host] + devices))
        used[host] += devices
        workers = devices + abs(elsewhere)
        sizes = tuple(range(1, workers + 1)) if elastic else (workers,)
        used_devices = {f"n{host}": list(indices)}
        if elsewhere > 0:
            used_devices = {**used_devices, "of no use": list(range(elsewhere))}
        elif elsewhere < 0:
            used_devices = {"of no use": list(range(-elsewhere)), **used_devices}
        candidates.append(
            Candidate(
                job(number, workers, priority=priority, sizes=sizes),
                attempt(f"job{number}", used_devices, in_place=elastic),
                {f"n{host}": indices},
            )
        )
    free = {"n0": 0, "n1": 0, "n2": 0}

    def enough(chosen: Sequence[Candidate]) -> bool:
        left = Counter(free)
        for c in chosen:
            left.update({node_id: len(indices) for node_id, indices in c.devices.items()})
        return max(left.values()) >= count if one_host else left.total() >= count

    found = preempted(count, free, candidates, one_host=one_host)
    if found is None:
        assert not enough(candidates)
        return
    assert enough(found)
    for spared in combinations(found, len(found) - 1):
        assert not enough(spared)
    for helper in found:
        others = [c for c in found if c is not helper]
        larger = [n for n in helper.smaller if helper.keeps is None or n > helper.keeps]
        assert not any(enough([*others, helper.shrunk(n)]) for n in larger)


def test_preemption_clears_the_cheapest_host() -> None:
    """Where the lowest priority runs, three would have to pause; elsewhere one is enough."""
    runs = [
        running("alone", 1, {"b": [0, 1]}, priority=5),
        running("three", 2, {"a": [0]}, priority=3),
        running("four", 3, {"a": [1]}, priority=4),
        running("five", 4, {"a": [2, 3]}, priority=5),
        running("six", 5, {"c": [0]}, priority=6),
    ]
    nodes = [node("a", 4), node("b", 4), node("c", 4)]
    urgent = job(6, 4, priority=50, one_host=True)
    (entry,) = schedule(NOW, cluster(nodes, runs, [urgent]), OPTIONS)
    assert [helper.job.id for helper in entry.preempted] == ["alone"]


def test_preemption_does_not_serve_returning_job() -> None:
    """Job r303 goes back to its old place in the queue, which is before job 1001's."""
    nodes = [node("n2", 1, labels={"zone": "y"}), node("n3", 1, labels={"zone": "x"})]
    before = NOW - timedelta(hours=36)
    runs = [running("r202", 202, {"n2": [0]}), running("r303", 303, {"n3": [0]}, queued_at=before)]
    waiting = [
        job(1001, 1, priority=1, selector={"zone": "y"}),
        job(1002, 1, priority=1, selector={"zone": "x"}, queued_at=NOW - timedelta(hours=24)),
    ]
    facts = cluster(nodes, runs, waiting)
    asked = {e.job.id: [c.job.id for c in e.preempted] for e in schedule(NOW, facts, OPTIONS)}
    assert asked == {"job1002": ["r303"], "job1001": []}
    pausing = tuple(replace(a, goal="pause") if a.job_id == "r303" else a for a in facts.attempts)
    entries = schedule(NOW, replace(facts, attempts=pausing), OPTIONS)
    assert not any(entry.preempted for entry in entries), "nor while it saves"


@settings(max_examples=share_of(60))
@given(busy_clusters())
def test_preemption_starts_the_job_and_settles(facts: ClusterFacts) -> None:
    """Those who make room go back to the queue at once, keeping their time; nothing else happens.
    Then the other starts, and after a few passes no job is preempted any more."""
    paused: list[str] = []
    for _ in range(40):
        entries = schedule(NOW, facts, OPTIONS)
        helpers = [(entry, c) for entry in entries for c in entry.preempted]
        starts = [entry for entry in entries if entry.placed is not None]
        if not helpers and not starts:
            break
        for entry in starts:
            facts = step(facts, entry, NOW)
        for _, helper in helpers:
            paused.append(helper.job.id)
            facts = replace(
                facts,
                jobs=tuple(
                    replace(j, state=JobState.RECOVERING) if j.id == helper.job.id else j
                    for j in facts.jobs
                ),
                attempts=tuple(a for a in facts.attempts if a.job_id != helper.job.id),
                grants=tuple(g for g in facts.grants if g.job_id != helper.job.id),
            )
        if helpers:
            now_placed = {e.job.id for e in schedule(NOW, facts, OPTIONS) if e.placed}
            assert {entry.job.id for entry, _ in helpers} <= now_placed
    else:
        raise AssertionError(f"it never comes to rest: {paused}")
    assert max(Counter(paused).values(), default=0) <= len(facts.jobs)
