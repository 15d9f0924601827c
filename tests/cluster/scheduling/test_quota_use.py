"""Devices that count against quotas."""

from dataclasses import replace

from support.cluster.facts import NOW
from support.cluster.facts import node_facts as node
from support.cluster.scheduling import attempt, cluster, running

from trainhall.cluster.scheduling.quota_use import devices_held


def test_quota_ignores_superseded_grants() -> None:
    facts = cluster([node("a", 8)], [running("r", 1, {"a": [0, 1, 2]}, in_place=True)], [])
    assert devices_held(facts) == {"r": 3}
    smaller = attempt("r", {"a": [0]}, in_place=True, started_at=NOW)
    assert devices_held(replace(facts, attempts=(smaller,))) == {"r": 1}
    next_one = replace(facts.jobs[0], attempt=2)
    assert devices_held(replace(facts, jobs=(next_one,))) == {}
