"""Nodes that get jobs of some projects alone."""

from dataclasses import replace

import pytest
from support.cluster.facts import NOW
from support.cluster.facts import node_facts as node
from support.cluster.scheduling import cluster, job, running
from support.cluster.simulated import SimulatedCluster

from trainhall.cluster.access.principal import Principal
from trainhall.cluster.errors import ForbiddenError, InvalidValueError
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.quotas import Quotas
from trainhall.cluster.reconcile.spare_capacity import SpareCapacity
from trainhall.cluster.scheduling.forecast import foresee
from trainhall.cluster.scheduling.scheduler import QueueEntry, schedule
from trainhall.cluster.snapshot.model import JobFacts, NodeFacts
from trainhall.db.accounts import Project

PLAIN = ClusterOptions()
VISION = frozenset({"vision"})


def queue(nodes: list[NodeFacts], *waiting: JobFacts) -> list[QueueEntry]:
    return schedule(NOW, cluster(nodes, [], waiting), PLAIN)


def of(entry: QueueEntry) -> list[str]:
    return [host.node_id for host in entry.placed or ()]


def test_jobs_get_nodes_of_their_project_alone() -> None:
    nodes = [node("a", 2, projects=VISION), node("b", 2)]
    other, own = queue(nodes, job(1, 2, project="speech"), job(2, 2, project="vision"))
    assert (of(other), of(own)) == (["b"], ["a"])
    (large,) = queue(nodes, job(1, 4, project="speech"))
    assert large.never
    assert "all nodes of its project have 2 CPU slots" in large.reason.text
    (fits,) = queue(nodes, job(1, 4, project="vision"))
    assert sorted(of(fits)) == ["a", "b"]


def test_all_nodes_of_others_are_explained() -> None:
    (entry,) = queue([node("a", 2, projects=VISION)], job(1, 1, project="speech"))
    assert entry.never
    assert entry.reason.text.endswith(
        "all nodes are limited to other projects: ask an admin for one"
    )


def test_auto_is_the_kind_of_open_nodes() -> None:
    nodes = [node("a", 2, "cuda", projects=VISION), node("b", 2)]
    other, own = queue(nodes, job(1, 1, project="speech"), job(2, 1, project="vision"))
    assert (of(other), of(own)) == (["b"], ["a"])


def test_waiting_for_a_closed_node_blocks_no_other() -> None:
    runs = [running("r", 1, {"a": [0, 1]}, project="vision")]
    waiting = [job(2, 2, project="vision"), job(3, 2, project="speech")]
    nodes = [node("a", 2, projects=VISION), node("b", 1, projects=frozenset({"speech"}))]
    facts = cluster(nodes, runs, waiting)
    facts = replace(facts, jobs=(*facts.jobs, job(4, 1, project="speech")))
    first, second, third = foresee(NOW, facts, PLAIN)
    assert first.placed is None
    assert second.never
    assert of(third) == ["b"]


def test_elastic_jobs_grow_on_open_nodes_alone() -> None:
    facts = cluster([node("a", 2, projects=VISION), node("b", 2)], [], [])
    spare = SpareCapacity(facts, Quotas())
    assert list(spare.of(job(1, 1, project="speech"), "cpu")) == ["b"]
    assert list(spare.of(job(1, 1, project="vision"), "cpu")) == ["a", "b"]


async def test_admins_limit_nodes_to_projects(cluster: SimulatedCluster) -> None:
    alpha = await cluster.add_node("alpha", 2)
    async with cluster.db.transaction() as session:
        session.add(Project(name="vision", limits={}, created_at=cluster.clock.now()))
    running_job = await cluster.submit(1, project="default")
    await cluster.run_until(running_job, "running")
    nodes = cluster.coordinator.nodes
    member = Principal("otto", False, "token")
    with pytest.raises(ForbiddenError):
        await nodes.limited_to(member).change(alpha.node_id, projects=["vision"])
    with pytest.raises(InvalidValueError, match="there is no project 'speech'"):
        await nodes.change(alpha.node_id, labels={"rack": "b"}, projects=["speech", "vision"])
    assert (await nodes.get(alpha.node_id)).labels == {}, "nothing is changed by half"
    assert (await nodes.change(alpha.node_id, projects=["vision", "vision"])).projects == ["vision"]
    assert (await nodes.limited_to(member).get(alpha.node_id)).projects == []
    waiting = await cluster.submit(1, project="default")
    assert (await cluster.job(waiting)).reason.endswith(
        "all nodes are limited to other projects: ask an admin for one"
    )
    assert (await cluster.job(running_job)).state == "running"
    own = await cluster.submit(1, project="vision")
    await cluster.run_until(own, "running")
    texts = [each.reason for each in await nodes.events(alpha.node_id)]
    assert "limited to some projects" in texts
    assert (await nodes.change(alpha.node_id, projects=None)).projects is None
    await cluster.finish(own)
    await cluster.run_until(waiting, "running")
