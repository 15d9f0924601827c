"""Placement and the queue's order and reasons: pure functions."""

from datetime import datetime, timedelta
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cluster.facts import NOW
from support.cluster.facts import node_facts as node
from support.cluster.scheduling import job

from trainhall.cluster.lifecycle.states import JobState, NodeState
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.scheduling.placement import FreeDevices, FreePool, allocation_of, place
from trainhall.cluster.scheduling.scheduler import schedule, shortage
from trainhall.cluster.snapshot.model import (
    ClusterFacts,
    GrantFacts,
    NodeFacts,
)

OPTIONS = ClusterOptions()


def free(*counts: int) -> list[FreeDevices]:
    return [FreeDevices(f"n{i}", f"node-{i}", tuple(range(n))) for i, n in enumerate(counts)]


@pytest.mark.parametrize(
    ("count", "counts", "expected"),
    [
        (2, (2,), {0: 2}),
        (2, (8, 2, 4), {1: 2}),
        (3, (8, 2, 4), {2: 3}),
        (5, (2, 4, 4), {1: 4, 0: 1}),
        (6, (4, 4, 4), {0: 4, 1: 2}),
        (10, (8, 4, 2, 1), {0: 8, 2: 2}),
        (1, (0, 1), {1: 1}),
    ],
)
def test_fewest_hosts_then_best_fit(
    count: int, counts: tuple[int, ...], expected: dict[int, int]
) -> None:
    placed = place(count, free(*counts))
    assert placed is not None
    assert {int(p.node_id[1:]): len(p.device_indices) for p in placed} == expected


@given(st.integers(1, 20), st.lists(st.integers(0, 8), max_size=6))
def test_placement_is_complete_minimal_and_ordered(count: int, counts: list[int]) -> None:
    nodes = free(*counts)
    placed = place(count, nodes)
    if sum(counts) < count:
        assert placed is None
        return
    assert placed is not None
    sizes = [len(p.device_indices) for p in placed]
    assert sum(sizes) == count
    assert sizes == sorted(sizes, reverse=True)
    for p in placed:
        assert set(p.device_indices) <= set(range(counts[int(p.node_id[1:])]))
    fewest = min(
        k
        for k in range(1, len(counts) + 1)
        if any(sum(chosen) >= count for chosen in combinations(counts, k))
    )
    assert len(placed) == fewest
    ranks = [r.rank for host in allocation_of(placed, "cpu") for r in host.ranks]
    assert ranks == list(range(count))


def placed_ids(facts: ClusterFacts, now: datetime = NOW) -> list[str]:
    return [e.job.id for e in schedule(now, facts, OPTIONS) if e.placed]


@given(st.lists(st.integers(1, 12), max_size=8), st.lists(st.integers(0, 8), max_size=6))
def test_pool_matches_single_placements(counts: list[int], free: list[int]) -> None:
    left = {f"node-{number}": tuple(range(count)) for number, count in enumerate(free)}

    def nodes() -> list[FreeDevices]:
        return [FreeDevices(name, name, indices) for name, indices in left.items()]

    pool = FreePool(nodes())
    for count in counts:
        placed = place(count, nodes())
        assert pool.place(count) == placed
        for host in placed or []:
            left[host.node_id] = tuple(set(left[host.node_id]) - set(host.device_indices))


def test_priority_then_order_of_queueing() -> None:
    facts = ClusterFacts(
        nodes=(node("a", 2),),
        jobs=(
            job(1, 1),
            job(2, 1, priority=3),
            job(3, 1, priority=3, queued_at=NOW - timedelta(1)),
        ),
    )
    assert [e.job.id for e in schedule(NOW, facts, OPTIONS)] == ["job3", "job2", "job1"]
    assert placed_ids(facts) == ["job3", "job2"]


def test_later_job_does_not_overtake() -> None:
    facts = ClusterFacts(
        nodes=(node("a", 4),),
        jobs=(job(1, 4), job(2, 1)),
        grants=(GrantFacts("a", 0, "runs", 1),),
    )
    first, second = schedule(NOW, facts, OPTIONS)
    assert first.placed is None
    assert first.text == "needs 4 CPU slots; 3 of 4 are free, a job that is ending holds 1"
    assert second.text == (
        "needs 1 CPU slot; waiting for job job1 (4 CPU slots), ahead in the queue"
    )


def test_impossible_job_blocks_no_other() -> None:
    facts = ClusterFacts(nodes=(node("a", 2),), jobs=(job(1, 8, priority=9), job(2, 2)))
    assert placed_ids(facts) == ["job2"]
    reason = schedule(NOW, facts, OPTIONS)[0].text
    assert reason.startswith("needs 8 CPU slots; the whole cluster has 2 CPU slots")
    assert reason.endswith("or request fewer workers")
    assert "add a node" in reason


@pytest.mark.parametrize(("asked", "has"), [("cpu", "cuda"), ("cuda", "cpu")])
def test_reason_names_available_device_kind(asked: str, has: str) -> None:
    facts = ClusterFacts(nodes=(node("a", 2, has),), jobs=(job(1, 1, device=asked),))
    assert schedule(NOW, facts, OPTIONS)[0].text.endswith(f"or set resources.device to {has}")


def test_reason_names_drain_of_device_kind() -> None:
    def reason(*nodes: NodeFacts, device: str = "cpu") -> str:
        facts = ClusterFacts(nodes=nodes, jobs=(job(1, 3, device=device),))
        return schedule(NOW, facts, OPTIONS)[0].text

    drained = node("a", 4, state=NodeState.DRAINED)
    undrain = "undrain it with `trainhall nodes undrain a`"
    add = "add a node with `trainhall nodes add`"
    assert reason(drained).endswith(
        f"has no CPU slot in service (a is drained): {undrain}, or {add}"
    )
    assert reason(drained, node("b", 2)).endswith(f"{undrain}, {add}, or request fewer workers")
    assert reason(drained, device="cuda").endswith(f"has no GPU: {add}")
    assert reason(node("a", 4, state=NodeState.LOST)).endswith(f"(a is lost): {add}")


def test_reason_names_shortage_of_the_cluster() -> None:
    grants = (GrantFacts("a", 0, "runs", 1), GrantFacts("a", 1, "runs", 1))
    facts = ClusterFacts(nodes=(node("a", 2),), jobs=(job(1, 2),), grants=grants)
    assert shortage(NOW, facts, OPTIONS, job(9, 2)) is None
    reason = shortage(NOW, facts, OPTIONS, job(9, 3))
    assert reason is not None
    assert reason.startswith("needs 3 CPU slots; the whole cluster has 2 CPU slots")


def test_auto_takes_gpus_where_there_are_any() -> None:
    both = ClusterFacts(
        nodes=(node("a", 4), node("g", 1, "cuda")), jobs=(job(1, 1), job(2, 1, device="cpu"))
    )
    first, second = schedule(NOW, both, OPTIONS)
    assert first.needs.device == "cuda"
    assert second.needs.device == "cpu"
    assert first.placed is not None
    assert first.placed[0].node_id == "g"
    waiting_gpu = ClusterFacts(
        nodes=both.nodes, jobs=both.jobs, grants=(GrantFacts("g", 0, "x", 1),)
    )
    assert placed_ids(waiting_gpu) == ["job2"], "a job that waits for GPUs blocks no CPU job"


@pytest.mark.parametrize(
    ("state", "removing", "word"),
    [
        (NodeState.LOST, False, "a is lost"),
        (NodeState.DRAINING, True, "a is being removed"),
        (NodeState.SUSPECT, False, "a is unreachable"),
        (NodeState.PENDING, False, "no node has joined yet: node a is registered, not yet joined"),
    ],
)
def test_only_ready_nodes_get_work(state: NodeState, removing: bool, word: str) -> None:
    facts = ClusterFacts(nodes=(node("a", 2, state=state, removing=removing),), jobs=(job(1, 1),))
    (entry,) = schedule(NOW, facts, OPTIONS)
    assert entry.placed is None
    assert word in entry.text


def test_restarts_in_a_row_wait_ever_longer() -> None:
    def starts(restarts: int, after: float) -> bool:
        recovering = job(
            1,
            1,
            state=JobState.RECOVERING,
            restarts=restarts,
            last_failure="attempt 1: it broke",
            last_ended_at=NOW,
        )
        facts = ClusterFacts(nodes=(node("a", 1),), jobs=(recovering, job(2, 1)))
        now = NOW + timedelta(seconds=after)
        entry = schedule(now, facts, OPTIONS)[0]
        if entry.placed is None:
            assert entry.earliest_start is not None
            assert "it broke" in entry.text
            assert "restarts at" in entry.text
            assert placed_ids(facts, now) == ["job2"]
        return entry.placed is not None

    assert starts(1, 0)
    assert not starts(2, 0.9)
    assert starts(2, 1)
    assert not starts(4, 3.9)
    assert starts(4, 4)
    # The time of day was set back: that is no reason to wait for it to come again.
    assert starts(4, -3600)
    assert starts(100_000, 30)


@given(st.data())
def test_waiting_job_is_placed_or_has_reason(data: st.DataObject) -> None:
    nodes = tuple(
        node(f"n{i}", data.draw(st.integers(0, 4)), data.draw(st.sampled_from(["cpu", "cuda"])))
        for i in range(data.draw(st.integers(0, 4)))
    )
    jobs = tuple(
        job(
            i,
            data.draw(st.integers(1, 6)),
            priority=data.draw(st.integers(-1, 1)),
            device=data.draw(st.sampled_from(["auto", "cpu", "cuda"])),
        )
        for i in range(data.draw(st.integers(0, 8)))
    )
    entries = schedule(NOW, ClusterFacts(nodes=nodes, jobs=jobs), OPTIONS)
    assert [e.position for e in entries] == list(range(1, len(jobs) + 1))
    taken = [
        (p.node_id, index)
        for e in entries
        if e.placed
        for p in e.placed
        for index in p.device_indices
    ]
    assert len(taken) == len(set(taken))
    for entry in entries:
        assert entry.text
        if entry.placed:
            assert sum(len(p.device_indices) for p in entry.placed) == entry.job.workers
