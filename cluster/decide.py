"""What shall change, and why: a pure function of (now, the state of the cluster, options)."""

import math
from collections.abc import Iterator
from datetime import datetime

from trainhall.cluster.decide_attempt import decide_attempt
from trainhall.cluster.decisions import (
    Decision,
    Explain,
    MoveNode,
    Regroup,
    Release,
    RemoveNode,
    StartAttempt,
    StopAttempt,
)
from trainhall.cluster.elastic import Spare, decide_size, has_left, shrink
from trainhall.cluster.facts import ClusterFacts, NodeFacts, NodeState
from trainhall.cluster.lifecycle import ACTIVE_ATTEMPT_STATES
from trainhall.cluster.node_lifecycle import UNHEARD, reason_to_drain
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.scheduling.scheduler import QueueEntry, schedule


def decide(now: datetime, facts: ClusterFacts, options: ClusterOptions) -> list[Decision]:
    """Everything that the present state asks for; empty when nothing is to be done."""
    decisions: list[Decision] = []
    nodes: dict[str, NodeFacts] = {}
    promised = _promised(facts)
    for node in facts.nodes:
        move = _decide_silence(node, promised.get(node.id, 0.0), options)
        if move is not None:
            decisions.append(move)
        nodes[node.id] = node
    lost = {node.id for node in facts.nodes if node.state is NodeState.LOST}
    jobs = {job.id: job for job in facts.jobs}
    spare = Spare(facts, options.quotas)
    for attempt in facts.attempts:
        job = jobs.get(attempt.job_id)
        if attempt.state in ACTIVE_ATTEMPT_STATES and job is not None:
            decision = decide_size(now, attempt, job, spare, options)
            if isinstance(decision, Regroup):
                spare.take(job, decision.placed)
            elif decision is None:
                decision = decide_attempt(now, attempt, job, facts, nodes, lost, options)
            if decision is not None:
                decisions.append(decision)
    decisions.extend(_releases(facts))
    decisions.extend(_drained(facts))
    decisions.extend(_removals(facts))
    for entry in schedule(now, facts, options):
        decisions.extend(_room_for(entry))
        if entry.placed is not None:
            decisions.append(StartAttempt(entry, entry.reason))
        elif entry.reason != entry.job.reason:
            decisions.append(Explain(entry.job.id, entry.job.state, entry.reason))
    return decisions


def _promised(facts: ClusterFacts) -> dict[str, float]:
    """The silence, by nodes' ids, before which no attempt of a node is replaced: its ranks end by
    themselves, and rely on the limit of when they were started."""
    promised: dict[str, float] = {}
    for attempt in facts.attempts:
        if attempt.isolation_seconds is not None and attempt.state in ACTIVE_ATTEMPT_STATES:
            for host in attempt.hosts:
                least = promised.get(host.node_id, 0.0)
                promised[host.node_id] = max(least, attempt.isolation_seconds)
    return promised


def _decide_silence(node: NodeFacts, promised: float, options: ClusterOptions) -> MoveNode | None:
    if node.state in UNHEARD:
        return None
    silent = node.silent_seconds
    lost_after = max(options.lost_after_seconds, promised)
    if silent >= lost_after:
        reason = f"not heard for {silent:.0f} s; its attempts are replaced"
        return MoveNode(node.id, node.state, NodeState.LOST, reason, lost_after)
    suspect_after = options.suspect_after_seconds
    if silent >= suspect_after and node.state is NodeState.READY:
        reason = f"not heard for {silent:.0f} s; it gets no new work"
        return MoveNode(node.id, node.state, NodeState.SUSPECT, reason, suspect_after)
    return None


def seconds_until_silent(facts: ClusterFacts, options: ClusterOptions) -> float:
    """When the silence of a node will next ask for something, if it is not heard before."""
    promised = _promised(facts)
    ends = [math.inf]
    for node in facts.nodes:
        if node.state in UNHEARD:
            continue
        ends.append(
            max(options.lost_after_seconds, promised.get(node.id, 0.0)) - node.silent_seconds
        )
        if node.state is NodeState.READY:
            ends.append(options.suspect_after_seconds - node.silent_seconds)
    return min(seconds for seconds in ends if seconds > 0)


def _room_for(entry: QueueEntry) -> Iterator[Decision]:
    """What those do who make room for a waiting job."""
    for helper in entry.make_room:
        reason = f"makes room for job {entry.job.id}, which has priority {entry.job.priority}"
        if helper.keeps is None:
            yield StopAttempt(helper.attempt.token, "pause", reason)
        elif (smaller := shrink(helper.attempt, helper.job, helper.keeps, reason)) is not None:
            yield smaller


def _drained(facts: ClusterFacts) -> Iterator[MoveNode]:
    busy = {grant.node_id for grant in facts.grants}
    for node in facts.nodes:
        if node.state is NodeState.DRAINING and node.drain_reason and node.id not in busy:
            reason = reason_to_drain(NodeState.DRAINED, node.drain_reason)
            yield MoveNode(node.id, node.state, NodeState.DRAINED, reason)


def _releases(facts: ClusterFacts) -> Iterator[Release]:
    attempts = {(a.job_id, a.number): a for a in facts.attempts}
    seen: set[tuple[str, str, int]] = set()
    for grant in facts.grants:
        attempt = attempts.get((grant.job_id, grant.attempt))
        key = (grant.node_id, grant.job_id, grant.attempt)
        if attempt is None or key in seen:
            continue
        host = next((h for h in attempt.hosts if h.node_id == grant.node_id), None)
        if attempt.state in ACTIVE_ATTEMPT_STATES:
            if has_left(attempt, host, grant.node_id, grant.device_index):
                reason = f"attempt {grant.attempt} has left this device"
                yield Release(*key, reason=reason, device_indices=(grant.device_index,))
            continue
        told = host.told if host is not None else attempt.left.get(grant.node_id)
        if told is not None and (told.outcome is not None or told.phase in ("exited", "gone")):
            seen.add(key)
            yield Release(*key, reason=f"attempt {grant.attempt} is over on this node")


def _removals(facts: ClusterFacts) -> Iterator[RemoveNode]:
    busy = {grant.node_id for grant in facts.grants}
    # Where a host has told its end, too: until its attempt ends it holds the devices of all hosts.
    in_use = {
        host.node_id
        for attempt in facts.attempts
        if attempt.state in ACTIVE_ATTEMPT_STATES
        for host in attempt.hosts
    }
    for node in facts.nodes:
        if not node.removing or node.id in in_use:
            continue
        # What a lost node still holds is not worth waiting for: it is fenced off already.
        if node.id not in busy or node.state in UNHEARD:
            yield RemoveNode(node.id, "a user removed it and nothing runs on it any more")
