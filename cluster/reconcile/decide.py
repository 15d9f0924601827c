"""Decisions and their reasons: a pure function of (now, the state of the cluster, options)."""

import math
from collections.abc import Iterator
from datetime import datetime

from trainhall.cluster.lifecycle.nodes import UNREACHABLE_STATES, reason_to_drain
from trainhall.cluster.lifecycle.reasons import Reason, ReasonCode, removed_by
from trainhall.cluster.lifecycle.states import ACTIVE_ATTEMPT_STATES, NodeState
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.reconcile.decisions import (
    Decision,
    Explain,
    MoveNode,
    Regroup,
    Release,
    RemoveNode,
    StartAttempt,
    StopAttempt,
)
from trainhall.cluster.reconcile.resize import has_left, preempted, shrink
from trainhall.cluster.reconcile.rules import decide_attempt
from trainhall.cluster.reconcile.situation import Situation
from trainhall.cluster.reconcile.spare_capacity import SpareCapacity
from trainhall.cluster.scheduling.scheduler import QueueEntry, schedule
from trainhall.cluster.snapshot.model import ClusterFacts, NodeFacts


def decide(now: datetime, facts: ClusterFacts, options: ClusterOptions) -> list[Decision]:
    """Return every decision that the present state asks for; empty when none is due."""
    decisions: list[Decision] = []
    isolation_seconds = _isolation_seconds(facts)
    for node in facts.nodes:
        move = _decide_liveness(node, isolation_seconds.get(node.id, 0.0), options)
        if move is not None:
            decisions.append(move)
    jobs = {job.id: job for job in facts.jobs}
    spare = SpareCapacity(facts, options.quotas)
    for attempt in facts.attempts:
        job = jobs.get(attempt.job_id)
        if attempt.state in ACTIVE_ATTEMPT_STATES and job is not None:
            situation = Situation(now, attempt, job, spare, options, facts.listening_seconds)
            decision = decide_attempt(situation)
            if isinstance(decision, Regroup):
                spare.take(job, decision.placed)
            if decision is not None:
                decisions.append(decision)
    decisions.extend(_releases(facts))
    decisions.extend(_drained(facts))
    decisions.extend(_removals(facts))
    for entry in schedule(now, facts, options):
        decisions.extend(_preemptions(entry))
        if entry.placed is not None:
            decisions.append(StartAttempt(entry, entry.reason))
        elif not entry.reason.is_stored(entry.job.reason_code, entry.job.reason):
            decisions.append(Explain(entry.job.id, entry.job.state, entry.reason))
    return decisions


def _isolation_seconds(facts: ClusterFacts) -> dict[str, float]:
    """Return, by node id, the time without a heartbeat before which no attempt of a node is
    replaced: its ranks stop on their own, and rely on the limit in force at their start."""
    isolation_seconds: dict[str, float] = {}
    for attempt in facts.attempts:
        if attempt.isolation_seconds is not None and attempt.state in ACTIVE_ATTEMPT_STATES:
            for host in attempt.hosts:
                least = isolation_seconds.get(host.node_id, 0.0)
                isolation_seconds[host.node_id] = max(least, attempt.isolation_seconds)
    return isolation_seconds


def _decide_liveness(
    node: NodeFacts, isolation_seconds: float, options: ClusterOptions
) -> MoveNode | None:
    if node.state in UNREACHABLE_STATES:
        return None
    idle_seconds = node.seconds_since_heartbeat
    lost_after = max(options.lost_after_seconds, isolation_seconds)
    if idle_seconds >= lost_after:
        reason = Reason.of(ReasonCode.LOST, seconds=idle_seconds)
        return MoveNode(node.id, node.state, NodeState.LOST, reason, lost_after)
    suspect_after = options.suspect_after_seconds
    if idle_seconds >= suspect_after and node.state is NodeState.READY:
        reason = Reason.of(ReasonCode.UNREACHABLE, seconds=idle_seconds)
        return MoveNode(node.id, node.state, NodeState.SUSPECT, reason, suspect_after)
    return None


def seconds_until_unreachable(facts: ClusterFacts, options: ClusterOptions) -> float:
    """Return the time until the lack of a node's heartbeats next calls for a decision."""
    isolation_seconds = _isolation_seconds(facts)
    ends = [math.inf]
    for node in facts.nodes:
        if node.state in UNREACHABLE_STATES:
            continue
        ends.append(
            max(options.lost_after_seconds, isolation_seconds.get(node.id, 0.0))
            - node.seconds_since_heartbeat
        )
        if node.state is NodeState.READY:
            ends.append(options.suspect_after_seconds - node.seconds_since_heartbeat)
    return min(seconds for seconds in ends if seconds > 0)


def _preemptions(entry: QueueEntry) -> Iterator[Decision]:
    """Decide what preempted jobs do."""
    for helper in entry.preempted:
        if helper.keeps is None:
            yield StopAttempt(helper.attempt.token, "pause", preempted(helper.job, entry.job))
        elif (smaller := shrink(helper.attempt, helper.job, helper.keeps, entry.job)) is not None:
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
                reason = Reason.of(ReasonCode.DEVICE_LEFT, attempt=grant.attempt)
                yield Release(*key, reason=reason, device_indices=(grant.device_index,))
            continue
        report = host.report if host is not None else attempt.left.get(grant.node_id)
        if report is not None and report.is_over:
            seen.add(key)
            reason = Reason.of(ReasonCode.ATTEMPT_OVER, attempt=grant.attempt)
            yield Release(*key, reason=reason)


def _removals(facts: ClusterFacts) -> Iterator[RemoveNode]:
    busy = {grant.node_id for grant in facts.grants}
    # Even where a host reported its end: until its attempt ends it holds the devices of all hosts.
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
        if node.id not in busy or node.state in UNREACHABLE_STATES:
            why = f"{removed_by(node.removed_by)}; nothing runs on it"
            yield RemoveNode(node.id, Reason.of(ReasonCode.REMOVED, why=why))
