"""Jobs that are planned or predicted first, through a real coordinator and agent."""

from collections.abc import Iterator

import psutil
import pytest
from support.cluster.cluster import Cluster, running_cluster
from support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.acceptance

JOB = {
    "name": "planned",
    "task": {"name": "digits"},
    "resources": {"workers": 2},
    "parallelism": {"strategy": "auto"},
    "training": {"steps": 30, "global_batch_size": 64},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), slots=2) as running:
        yield running


@pytest.fixture(scope="module")
def forking_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Its planners have torch imported when they begin."""
    folder = tmp_path_factory.mktemp("forking")
    with running_cluster(folder, slots=2, forks_scripts=True) as running:
        yield running


def planners(cluster: Cluster) -> list[psutil.Process]:
    """The planner runs as a child of the agent."""
    return [
        child
        for child in psutil.Process(cluster.agent.pid).children()
        if "trainhall.training.planning.planner" in child.cmdline()
    ]


def test_auto_plan_survives_a_killed_agent(cluster: Cluster) -> None:
    job = cluster.submit(JOB)
    (planner,) = eventually("the planner to run", lambda: planners(cluster))
    assert cluster.job(job)["reason"].startswith("planning its strategy on node here")
    cluster.agent.kill()
    cluster.agent.start()
    done = cluster.wait_for(job, "completed")
    planner.wait(PATIENCE)
    plan = done["plan"]
    assert done["attempt"] == 1
    assert done["spec"]["parallelism"]["strategy"] == "auto"
    assert plan["parallelism"]["strategy"] in plan["summary"]
    assert plan["measured"]["steps"] == 30
    assert plan["error"]["step_seconds"] == pytest.approx(
        plan["measured"]["step_seconds"] / plan["prediction"]["step_seconds"] - 1
    )
    kinds = [event["kind"] for event in cluster.get(f"/training/jobs/{job}/events")["items"]]
    assert kinds.count("plan") == 1


def test_unplannable_job_fails_with_the_reason(forking_cluster: Cluster) -> None:
    cluster = forking_cluster
    job = cluster.submit({**JOB, "task": {"name": "cifar10", "params": {"root": "/nowhere"}}})
    failed = cluster.wait_for(job, "failed")
    assert failed["attempt"] == 1
    assert "planning its strategy failed: " in failed["reason"]
    assert "/nowhere" in failed["reason"]


def test_named_strategy_is_predicted_or_says_why_not(forking_cluster: Cluster) -> None:
    cluster = forking_cluster
    named = {**JOB, "parallelism": {"strategy": "fsdp", "predict": True}}
    done = cluster.wait_for(cluster.submit(named), "completed")
    assert done["plan"]["is_named"]
    assert done["plan"]["reason"].startswith("fsdp (shard 2) takes ")
    assert done["plan"]["measured"]["steps"] == 30
    job = cluster.submit({**named, "task": {"name": "cifar10", "params": {"root": "/nowhere"}}})
    failed = cluster.wait_for(job, "failed")
    assert failed["plan"] is None
    events = cluster.get(f"/training/jobs/{job}/events")["items"]
    (plan,) = [event["reason"] for event in events if event["kind"] == "plan"]
    assert plan.startswith("not predicted: ")
    assert "/nowhere" in plan
