"""An attempt under `on_isolation: stop` is replaced once no rank of it can run any more."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.cluster.facts import NOW, attempt_facts, host_facts, job_facts, node_facts
from support.cluster.simulated import SimulatedCluster

from trainhall.cluster.lifecycle.host_report import HostReport
from trainhall.cluster.lifecycle.states import AttemptState, JobState, NodeState
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.reconcile.decide import decide
from trainhall.cluster.reconcile.decisions import Decision, EndAttempt, MoveNode, StopAttempt
from trainhall.cluster.snapshot.model import (
    AttemptFacts,
    ClusterFacts,
    HostFacts,
    NodeFacts,
)
from trainhall.training.link.status import Outcome

SHORT = ClusterOptions(lost_after_seconds=30.0)
RUNNING = HostReport("running")
SAVED = HostReport("exited", Outcome.PAUSED, shipped=True, isolated=True, ended_at=NOW)


def attempt(*hosts: HostReport, promised: float | None = 90.0) -> AttemptFacts:
    return attempt_facts(host_facts(*hosts), isolation_seconds=promised)


def decided(the_attempt: AttemptFacts, *nodes: NodeFacts) -> list[Decision]:
    facts = ClusterFacts(nodes=nodes, jobs=(job_facts(),), attempts=(the_attempt,))
    return decide(NOW, facts, SHORT)


def node(name: str, idle_seconds: float = 0.0, state: NodeState = NodeState.READY) -> NodeFacts:
    return node_facts(name, seconds_since_heartbeat=idle_seconds, state=state)


@pytest.mark.parametrize(
    ("promised", "idle_seconds", "lost"),
    [(None, 29, False), (None, 31, True), (90.0, 89, False), (90.0, 91, True), (20.0, 29, False)],
)
def test_node_is_lost_after_isolation_limit(
    promised: float | None, idle_seconds: float, lost: bool
) -> None:
    """A coordinator that was restarted with a shorter limit keeps the word of the one before."""
    moves = [
        d for d in decided(attempt(RUNNING, promised=promised), node("a", idle_seconds))
        if isinstance(d, MoveNode) and d.end is NodeState.LOST
    ]  # fmt: skip
    assert bool(moves) == lost
    if moves:
        assert moves[0].after_seconds == max(30.0, promised or 0.0)


def test_other_hosts_end_before_it_moves() -> None:
    nodes = node("a", 100, NodeState.LOST), node("b")
    (stop,) = decided(attempt(RUNNING, RUNNING), *nodes)
    assert isinstance(stop, StopAttempt)
    assert stop.goal == "stop"
    stopping = replace(attempt(RUNNING, RUNNING), goal="stop", state=AttemptState.STOPPING)
    assert decided(stopping, *nodes) == []
    ended = replace(
        stopping,
        hosts=(stopping.hosts[0], HostFacts("b", "b", HostReport("exited", Outcome.STOPPED))),
    )
    (end,) = decided(ended, *nodes)
    assert isinstance(end, EndAttempt)
    assert end.attempt_end is AttemptState.LOST
    (at_once,) = decided(attempt(RUNNING, RUNNING, promised=None), *nodes)
    assert isinstance(at_once, EndAttempt), "those that are kept running are fenced off alone"


def test_forgotten_attempt_has_time_to_end() -> None:
    for since, waits in ((10, True), (89, True), (91, False)):
        gone = HostReport(
            "gone", Outcome.FAILED, shipped=True, ended_at=NOW - timedelta(seconds=since)
        )
        assert (decided(attempt(gone), node("a")) == []) == waits
        assert decided(attempt(gone, promised=None), node("a")) != []


def test_ranks_that_ended_in_isolation_cost_no_restart() -> None:
    (end,) = decided(attempt(SAVED), node("a"))
    assert isinstance(end, EndAttempt)
    assert end.restarts is None
    assert end.job_path == (JobState.RECOVERING,)
    assert "could not reach the coordinator" in end.reason.text


async def test_launch_carries_the_isolation_limit(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("alpha")
    keeps = await cluster.submit()
    stops = await cluster.submit(recovery={"on_isolation": "stop"})
    for job_id, seconds in ((keeps, None), (stops, 90.0)):
        await cluster.run_until(job_id, "running")
        assert node.running(job_id).assignment.launch.isolation_seconds == seconds
