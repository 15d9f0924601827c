"""Decisions about the size of an elastic job, for any state of the cluster."""

import math
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st
from support.cluster.facts import NOW, attempt_facts, job_facts, node_facts

from trainhall.cluster.lifecycle.host_report import HostReport
from trainhall.cluster.lifecycle.states import JobState, NodeState
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.quotas import Quotas
from trainhall.cluster.reconcile.decisions import Decision, Regroup, StopAttempt
from trainhall.cluster.reconcile.resize import has_left, placed, shrink
from trainhall.cluster.reconcile.rules import AT_ANY_TIME
from trainhall.cluster.reconcile.situation import Situation
from trainhall.cluster.reconcile.spare_capacity import SpareCapacity
from trainhall.cluster.snapshot.model import (
    AttemptFacts,
    ClusterFacts,
    GrantFacts,
    HostFacts,
    JobFacts,
    NodeFacts,
)
from trainhall.training.link.failure import Cause, Failure
from trainhall.training.link.status import FailedRank, Outcome

OPTIONS = ClusterOptions()
NO_QUOTAS = Quotas()
KILLED = Failure(rank=0, signal=9, message="rank 0 was killed")


def node(name: str, slots: int, state: NodeState = NodeState.READY, **more: Any) -> NodeFacts:
    return node_facts(name, slots, state=state, **more)


def job(*sizes: int, **more: object) -> JobFacts:
    return job_facts(**{"workers": sizes[-1], "step": 10, "sizes": sizes} | more)


WAITING = job(1)


def attempt(held: dict[str, tuple[int, ...]], **more: object) -> AttemptFacts:
    hosts, rank = [], 0
    for name, indices in held.items():
        ranks = tuple(range(rank, rank + len(indices)))
        reported = HostReport("running", generation=3, in_place=True)
        hosts.append(HostFacts(name, name, reported, ranks, indices))
        rank += len(indices)
    before = NOW - timedelta(hours=1)
    usual = {"generation": 3, "begun": True, "regrouped_at": before, "running_at": before}
    return attempt_facts(tuple(hosts), **{**usual, "in_place": True, **more})


def with_report(of: AttemptFacts, name: str, **more: object) -> AttemptFacts:
    hosts = tuple(
        replace(h, report=replace(h.report, **more)) if h.node_id == name and h.report else h  # type: ignore[arg-type]
        for h in of.hosts
    )
    return replace(of, hosts=hosts)


def failed_ranks(
    *indices: int, generation: int = 3, failure: Failure = KILLED
) -> tuple[FailedRank, ...]:
    return tuple(
        FailedRank(
            rank=i, device_kind="cpu", device_index=i, generation=generation, failure=failure
        )
        for i in indices
    )


def facts(
    the_attempt: AttemptFacts,
    the_job: JobFacts,
    *nodes: NodeFacts,
    waiting: tuple[JobFacts, ...] = (),
) -> ClusterFacts:
    grants = [
        GrantFacts(host.node_id, index, "job", 1)
        for host in the_attempt.hosts
        for index in host.devices
    ]
    return ClusterFacts(
        nodes=nodes, jobs=(the_job, *waiting), attempts=(the_attempt,), grants=tuple(grants)
    )


def decision(
    the_attempt: AttemptFacts,
    the_job: JobFacts,
    *nodes: NodeFacts,
    waiting: tuple[JobFacts, ...] = (),
    quotas: Quotas = NO_QUOTAS,
) -> Decision | None:
    spare = SpareCapacity(facts(the_attempt, the_job, *nodes, waiting=waiting), quotas)
    return size_decision(the_attempt, the_job, spare)


def size_decision(
    the_attempt: AttemptFacts, the_job: JobFacts, spare: SpareCapacity
) -> Decision | None:
    """What the rules about sizes and lost ranks decide; None: they leave it to the others."""
    situation = Situation(NOW, the_attempt, the_job, spare, OPTIONS, math.inf)
    sizes = ("replace ranks", "stop after a failed rank", "resize", "grow")
    held = (rule for rule in AT_ANY_TIME if rule.name in sizes and rule.holds(situation))
    rule = next(held, None)
    return rule.decide(situation) if rule is not None else None


def regrouped(found: Decision | None) -> dict[str, tuple[int, ...]]:
    assert isinstance(found, Regroup)
    return {node.node_id: node.device_indices for node in found.placed}


def test_resize_leaves_full_size_attempt_alone() -> None:
    assert decision(attempt({"a": (0, 1)}), job(1, 2), node("a", 4)) is None


def test_failed_rank_is_replaced_on_its_device() -> None:
    hurt = with_report(attempt({"a": (0, 1)}), "a", failed_ranks=failed_ranks(1))
    found = decision(hurt, job(2), node("a", 2))
    assert regrouped(found) == {"a": (0, 1)}
    assert isinstance(found, Regroup)
    assert (found.restarts, found.restarts_step) == (1, 10)


def test_resize_reports_lost_host_without_restart_cost() -> None:
    held = attempt({"a": (0,), "b": (0,)})
    found = decision(held, job(1, 2), node("a", 1), node("b", 1, NodeState.LOST))
    assert isinstance(found, Regroup)
    assert found.failure is not None
    assert (found.failure.cause, found.failure.node) == (Cause.NODE_LOST, "b")
    assert (found.restarts, found.restarts_step) == (None, None)
    drained = decision(held, job(1, 2), node("a", 1), node("b", 1, NodeState.DRAINING))
    assert isinstance(drained, Regroup)
    assert drained.failure is None
    # A rank's own failure says more.
    spread = attempt({"a": (0, 1), "b": (0,)})
    both = with_report(spread, "a", failed_ranks=failed_ranks(0))
    found = decision(both, job(1, 2, 3), node("a", 2), node("b", 1, NodeState.LOST))
    assert isinstance(found, Regroup)
    assert found.failure is not None
    assert found.failure.signal == KILLED.signal


def test_resize_keeps_ranks_with_state() -> None:
    hurt = with_report(attempt({"a": (0, 1, 2), "b": (0,)}), "a", failed_ranks=failed_ranks(0, 1))
    nodes = (node("a", 3), node("b", 1, NodeState.LOST))
    assert regrouped(decision(hurt, job(1, 2, 4), *nodes)) == {"a": (0, 2)}
    assert regrouped(decision(hurt, job(1, 4), *nodes)) == {"a": (2,)}


def test_resize_ignores_failures_of_earlier_generation() -> None:
    hurt = with_report(
        attempt({"a": (0, 1)}), "a", generation=2, failed_ranks=failed_ranks(1, generation=2)
    )
    assert decision(hurt, job(2), node("a", 2)) is None


def test_a_device_that_is_gone_is_left() -> None:
    hurt = with_report(attempt({"a": (0, 1, 2)}), "a", failed_ranks=failed_ranks(2))
    found = decision(hurt, job(1, 2, 3), node("a", 2))
    assert regrouped(found) == {"a": (0, 1)}


def test_resize_leaves_missing_devices_if_possible() -> None:
    hurt = with_report(attempt({"a": (0, 1, 2)}), "a", failed_ranks=failed_ranks(0))
    assert regrouped(decision(hurt, job(1, 2, 3), node("a", 2))) == {"a": (0, 1)}
    # It needs them: what fell is replaced where it was.
    assert regrouped(decision(hurt, job(3), node("a", 2))) == {"a": (0, 1, 2)}
    spare = node("b", 1)
    assert regrouped(decision(hurt, job(3), node("a", 2), spare)) == {"a": (0, 1), "b": (0,)}
    # Nobody else has the state.
    assert regrouped(decision(hurt, job(1, 2, 3), node("a", 1))) == {"a": (0, 1, 2)}
    lonely = with_report(attempt({"a": (0,), "b": (5,)}), "a", failed_ranks=failed_ranks(0))
    assert regrouped(decision(lonely, job(2), node("a", 1), node("b", 2))) == {"a": (0,), "b": (5,)}
    # A host that has others continues with them.
    moved = with_report(attempt({"a": (5,), "b": (0, 1)}), "b", failed_ranks=failed_ranks(1))
    after = decision(moved, job(1, 2, 3), node("a", 1), node("b", 2))
    assert regrouped(after) == {"a": (0,), "b": (0, 1)}
    # A rank that failed on one of them has no device to begin on.
    hurt = with_report(attempt({"a": (0, 1, 2)}), "a", failed_ranks=failed_ranks(2))
    assert isinstance(decision(hurt, job(3), node("a", 2)), StopAttempt)
    assert regrouped(decision(hurt, job(1, 2, 3), node("a", 0))) == {"a": (0, 1)}


def test_resize_stops_attempt_that_cannot_regroup() -> None:
    whole = attempt({"a": (0, 1)})
    of_all = with_report(whole, "a", failed_ranks=failed_ranks(0, 1))
    final = with_report(
        whole, "a", failed_ranks=failed_ranks(1, failure=KILLED.model_copy(update={"final": True}))
    )
    one = with_report(whole, "a", failed_ranks=failed_ranks(1))
    cases = [
        (of_all, job(2)),
        (final, job(2)),
        (one, job(2, restarts=3, restarts_step=10)),
        (replace(one, begun=False), job(2)),
        (replace(one, goal="pause"), job(2, state=JobState.PAUSING)),
        (with_report(one, "a", in_place=False), job(2)),
    ]
    for hurt, its_job in cases:
        found = decision(hurt, its_job, node("a", 2))
        assert isinstance(found, StopAttempt)
        assert found.goal == "stop"
        assert found.failure is not None


def test_resize_stops_after_same_error_twice() -> None:
    error = Failure(rank=1, exit_code=1, message="rank 1 failed: KeyError: 'x'")
    hurt = with_report(attempt({"a": (0, 1)}), "a", failed_ranks=failed_ranks(1, failure=error))
    again = replace(hurt, failed_before=error)
    assert isinstance(
        decision(again, job(2, restarts=1, restarts_step=10), node("a", 2)), StopAttempt
    )
    assert isinstance(decision(again, job(2), node("a", 2)), Regroup)


def test_resize_moves_lost_ranks_to_free_devices() -> None:
    whole = attempt({"a": (0, 1), "b": (0, 1)})
    lost = node("b", 2, NodeState.LOST)
    assert regrouped(decision(whole, job(4), node("a", 2), lost, node("c", 3))) == {
        "a": (0, 1),
        "c": (0, 1),
    }
    assert regrouped(decision(whole, job(2, 3, 4), node("a", 2), lost)) == {"a": (0, 1)}
    assert decision(whole, job(3, 4), node("a", 2), lost) is None, "it ends as any other does"
    first_lost = decision(whole, job(2, 4), node("a", 2, NodeState.LOST), node("b", 2))
    assert regrouped(first_lost) == {"b": (0, 1)}


def test_resize_leaves_a_host_with_dead_shim() -> None:
    hurt = with_report(
        attempt({"a": (0,), "b": (0,)}), "b", phase="exited", outcome=Outcome.FAILED, failure=KILLED
    )
    found = decision(hurt, job(1, 2), node("a", 1), node("b", 1))
    assert regrouped(found) == {"a": (0,)}
    assert isinstance(found, Regroup)
    assert found.restarts == 1


def test_resize_waits_for_a_suspect_node() -> None:
    whole = attempt({"a": (0, 1), "b": (0, 1)})
    suspect = node("b", 2, NodeState.SUSPECT)
    assert decision(whole, job(2, 4), node("a", 2), suspect, node("c", 2)) is None


def test_growth_takes_largest_size_on_present_hosts_first() -> None:
    small = attempt({"b": (1,)})
    found = decision(small, job(1, 2, 4), node("a", 1), node("b", 2), node("c", 3))
    assert regrouped(found) == {"b": (1, 0), "c": (0, 1)}
    assert regrouped(decision(small, job(1, 2, 8), node("a", 1), node("b", 2), node("c", 3))) == {
        "b": (1, 0)
    }


def test_growth_waits() -> None:
    small, nodes = attempt({"a": (0,)}), (node("a", 4),)
    lately = NOW - timedelta(seconds=OPTIONS.grow_after_seconds / 2)
    assert decision(replace(small, regrouped_at=lately), job(1, 4), *nodes) is None
    assert decision(with_report(small, "a", generation=2), job(1, 4), *nodes) is None
    assert decision(with_report(small, "a", leaving=(3,)), job(1, 4), *nodes) is None
    assert decision(small, job(1, 4, state=JobState.PAUSING), *nodes) is None


def test_growth_leaves_devices_for_waiting_jobs() -> None:
    small, nodes = attempt({"a": (0,)}), (node("a", 4, labels={"rack": "1"}),)
    other = job(4, id="other", state=JobState.QUEUED)
    assert decision(small, job(1, 4), *nodes, waiting=(other,)) is None
    larger_than_the_cluster = replace(other, sizes=(5,), workers=5)
    elsewhere = replace(other, selector={"rack": "2"})
    of_gpus = replace(other, device="cuda")
    for useless in (larger_than_the_cluster, elsewhere, of_gpus):
        assert decision(small, job(1, 4), *nodes, waiting=(useless,)) is not None


def test_selectors_and_one_host_hold() -> None:
    small, nodes = attempt({"a": (0,)}), (node("a", 2, labels={"x": "1"}), node("b", 4))
    assert regrouped(decision(small, job(1, 2, 4, one_host=True), *nodes)) == {"a": (0, 1)}
    assert regrouped(decision(small, job(1, 2, 4, selector={"x": "1"}), *nodes)) == {"a": (0, 1)}


def test_quotas_hold() -> None:
    small, of_lab = attempt({"a": (0,)}), job(1, 2, 4, project="lab")
    limits = Quotas(projects={"lab": 3})
    assert regrouped(decision(small, of_lab, node("a", 4), quotas=limits)) == {"a": (0, 1)}
    spent = Quotas(projects={"lab": 1})
    assert decision(small, of_lab, node("a", 4), quotas=spent) is None


def test_replacement_stays_within_the_quota() -> None:
    spent, nodes = Quotas(projects={"lab": 2}), (node("a", 1), node("c", 4))
    pair, of_lab = attempt({"a": (0,), "b": (0,)}), job(2, project="lab")
    assert regrouped(decision(pair, of_lab, *nodes, quotas=spent)) == {"a": (0,), "c": (0,)}
    more = replace(of_lab, sizes=(2, 3))
    assert regrouped(decision(pair, more, *nodes, quotas=spent)) == {"a": (0,), "c": (0,)}


def test_quota_ignores_devices_of_lost_host() -> None:
    alone, of_lab = attempt({"a": (0,)}), job(1, 2, project="lab")
    whole = facts(alone, of_lab, node("a", 2), node("b", 1, NodeState.LOST))
    held = replace(whole, grants=(*whole.grants, GrantFacts("b", 0, "job", 1)))
    spare = SpareCapacity(held, Quotas(projects={"lab": 2}))
    assert regrouped(size_decision(alone, of_lab, spare)) == {"a": (0, 1)}


def test_growth_leaves_quota_for_waiting_jobs() -> None:
    lab, nodes = Quotas(projects={"lab": 3}), (node("a", 4), node("b", 3, labels={"rack": "1"}))
    small, of_lab = attempt({"a": (0,)}), job(1, 3, project="lab")
    other = job(3, id="other", state=JobState.QUEUED, project="lab", selector={"rack": "1"})
    assert decision(small, of_lab, *nodes, quotas=lab, waiting=(other,)) is None
    beyond = replace(other, sizes=(4,), workers=4)
    elsewhere = replace(other, project="shop")
    for useless in (beyond, elsewhere):
        found = decision(small, of_lab, *nodes, quotas=lab, waiting=(useless,))
        assert regrouped(found) == {"a": (0, 1, 2)}


def test_isolated_ranks_are_not_replaced_in_place() -> None:
    """A node that knows nothing of them any more is no proof that they have ended."""
    lost = Failure(message="node b no longer knows attempt 1")
    gone = with_report(attempt({"a": (0,), "b": (0,)}), "b", outcome=Outcome.FAILED, failure=lost)
    nodes = (node("a", 1), node("c", 1))
    assert decision(gone, job(2), *nodes) is not None
    assert decision(replace(gone, isolation_seconds=90.0), job(2), *nodes) is None


def test_growth_by_restart_waits_longer() -> None:
    plain = attempt({"a": (0,)}, in_place=False)
    found = decision(plain, job(1, 2), node("a", 2))
    assert isinstance(found, StopAttempt)
    assert found.goal == "pause"
    assert found.reason.text.endswith("continues with 2 workers instead of 1: it saves first")
    soon = replace(plain, running_at=NOW - timedelta(seconds=60))
    assert decision(soon, job(1, 2), node("a", 2)) is None
    saves_nothing = replace(plain, script=True, begun=False)
    assert decision(saves_nothing, job(1, 2), node("a", 2)) is None
    resized = decision(saves_nothing, job(2), node("a", 2))
    assert isinstance(resized, StopAttempt)
    assert resized.reason.text == (
        "resized by a user; continues with 2 workers instead of 1: "
        "its script gets SIGTERM and starts again"
    )


def test_preemption_keeps_the_first_ranks() -> None:
    whole = attempt({"a": (0, 1), "b": (0, 1)})
    assert regrouped(shrink(whole, job(2, 3, 4), 3, WAITING)) == {"a": (0, 1), "b": (0,)}
    assert regrouped(shrink(whole, job(2, 4), 2, WAITING)) == {"a": (0, 1)}
    assert shrink(whole, job(2, 4), 3, WAITING) is None
    assert shrink(with_report(whole, "b", generation=2), job(2, 4), 2, WAITING) is None
    assert isinstance(shrink(replace(whole, in_place=False), job(2, 4), 2, WAITING), StopAttempt)


def test_device_is_released_after_its_hosts_report() -> None:
    now = attempt({"a": (0,)})
    host = now.hosts[0]
    assert not has_left(now, host, "a", 0)
    assert has_left(now, host, "a", 1)
    busy = with_report(now, "a", leaving=(1,)).hosts[0]
    assert not has_left(now, busy, "a", 1)
    old = with_report(now, "a", generation=2).hosts[0]
    assert not has_left(now, old, "a", 1), "it does not know yet that it is to leave"
    assert not has_left(now, None, "b", 0)
    gone = replace(now, left={"b": HostReport("exited", Outcome.STOPPED, generation=2)})
    assert has_left(gone, None, "b", 0)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[AttemptFacts, JobFacts, tuple[NodeFacts, ...]]:
    """An attempt in place on some of a few nodes, of which anything may have happened."""
    states = [*[NodeState.READY] * 3, NodeState.SUSPECT, NodeState.LOST, NodeState.DRAINING]
    nodes = tuple(
        node(name, draw(st.integers(1, 4)), draw(st.sampled_from(states)))
        for name in "abcd"[: draw(st.integers(1, 4))]
    )
    held = {
        n.id: tuple(indices)
        for n in nodes
        # One or two of them may be gone.
        if (indices := draw(st.lists(st.sampled_from(range(len(n.devices) + 2)), unique=True)))
    }
    assume(held)
    size = sum(len(indices) for indices in held.values())
    sizes = sorted(draw(st.sets(st.integers(1, 16), max_size=6)) | {size})
    found = attempt(held)
    for name, its in held.items():
        if draw(st.booleans()):
            dead = draw(st.lists(st.sampled_from(its), unique=True))
            found = with_report(found, name, failed_ranks=failed_ranks(*dead))
    return found, job(*sizes, workers=size), nodes


@given(clusters())
def test_regroup_keeps_its_invariants(
    drawn: tuple[AttemptFacts, JobFacts, tuple[NodeFacts, ...]],
) -> None:
    before, its_job, nodes = drawn
    found = decision(before, its_job, *nodes)
    if not isinstance(found, Regroup):
        return
    after = [(n.node_id, i) for n in found.placed for i in n.device_indices]
    assert len(after) == len(set(after)), "a device twice"
    assert len(after) in its_job.sizes
    by_id = {n.id: n for n in nodes}
    held = {(n.node_id, i) for n in placed(before) for i in n.device_indices}
    dead = {
        (host.node_id, rank.device_index)
        for host in before.hosts
        if host.report is not None
        for rank in host.report.failed_ranks
    }
    for node_id, index in after:
        # No new rank begins on a device that is gone.
        assert index < len(by_id[node_id].devices) or (node_id, index) in held - dead
        if (node_id, index) in held:
            assert by_id[node_id].state in (NodeState.READY, NodeState.SUSPECT)
        else:
            assert by_id[node_id].state is NodeState.READY
    # Somebody with the state stays.
    assert set(after) & (held - dead)


@given(clusters())
def test_resize_decides_nothing_twice(
    drawn: tuple[AttemptFacts, JobFacts, tuple[NodeFacts, ...]],
) -> None:
    """What was just decided is not decided again, whatever time passes in a quiet cluster."""
    before, its_job, nodes = drawn
    found = decision(before, its_job, *nodes)
    if not isinstance(found, Regroup):
        return
    after = attempt(regrouped(found), regrouped_at=NOW)
    assert decision(after, its_job, *nodes) is None
    much_later = replace(after, regrouped_at=NOW - timedelta(hours=1))
    assert decision(much_later, its_job, *nodes) is None


def test_ranks_with_state_leave_after_transfer() -> None:
    """Before the ranks of a generation have taken a step, those that it began with may be the only
    ones that have the state."""
    meets = attempt({"a": (0,), "b": (0,)}, stepped=False)
    nodes = (node("a", 1, NodeState.DRAINING), node("b", 1), node("c", 1))
    assert decision(meets, job(1, 2), *nodes) is None
    after = decision(replace(meets, stepped=True), job(1, 2), *nodes)
    assert isinstance(after, Regroup)
    assert [place.node_id for place in after.placed] == ["b", "c"]
    # A rank that fails meanwhile is replaced, and the drained node is left after that.
    failed = with_report(meets, "b", failed_ranks=failed_ranks(0))
    regroup = decision(failed, job(1, 2), *nodes)
    assert isinstance(regroup, Regroup)
    assert [place.node_id for place in regroup.placed] == ["a", "b"]
    # Nobody makes room either, or grows.
    held, free = attempt({"a": (0, 1)}, stepped=False), node("b", 2)
    assert shrink(held, job(1, 2), 1, WAITING) is None
    assert shrink(replace(held, stepped=True), job(1, 2), 1, WAITING) is not None
    assert decision(held, job(2, 4), node("a", 2), free) is None
    assert decision(replace(held, stepped=True), job(2, 4), node("a", 2), free) is not None
