"""A script whose ranks are on two hosts: two agents of one cluster, each with one device."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cluster.cluster import Cluster, Program, running_cluster
from support.waiting import eventually

pytestmark = pytest.mark.acceptance

SCRIPT = """
import time
import torch
import torch.distributed as dist
import trainhall as th

here = th.init(total_steps=100000)
state = {"weight": torch.zeros(())} if (saved := th.checkpoint.load()) is None else saved
for step in range(th.checkpoint.step + 1, 100001):
    ranks = torch.tensor(float(here.rank + 1))
    dist.all_reduce(ranks)
    state["weight"] += ranks
    th.report(weight=state["weight"], step=step)
    if stop := th.should_stop():
        th.checkpoint.save(state, step=step)
        th.leave()
    time.sleep(0.01)
"""


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster of two hosts: an agent each, that share neither folders nor an address."""
    with running_cluster(tmp_path / "cluster", slots=1, forks_scripts=True) as cluster:
        token = cluster.post("/cluster/nodes", json={"name": "there"})["join_token"]
        runtime = cluster.folder / "run-there"
        runtime.mkdir()
        other = Program(
            "other",
            ["agent", "--coordinator", cluster.url, "--token", token, "--slots", "1",
             "--data-dir", str(cluster.folder / "other"), "--address", "127.0.0.2"],
            cluster.folder,
            {**cluster.agent.env, "TRAINHALL_RUNTIME_DIR": str(runtime)},
        )  # fmt: skip
        other.start()

        def both_are_ready() -> bool:
            nodes = cluster.get("/cluster/nodes")["items"]
            return [node["state"] for node in nodes] == ["ready", "ready"]

        eventually("both nodes to be ready", both_are_ready)
        yield cluster
        cluster.cancel_everything()
        assert other.stop() == 0


def test_script_over_hosts_pauses_and_resumes(hosts: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    job = hosts.submit(
        {
            "name": "over hosts",
            "script": {"path": str(path), "env": {"OMP_NUM_THREADS": "1"}},
            "resources": {"workers": 2, "device": "cpu"},
            "recovery": {"max_restarts": 0},
        }
    )
    hosts.wait_for_step(job, 5)
    (attempt,) = hosts.get(f"/training/jobs/{job}/attempts")["items"]
    assert sorted(host["node_name"] for host in attempt["allocation"]) == ["here", "there"]
    hosts.put(f"/training/jobs/{job}/pause")
    hosts.wait_for(job, "paused")
    (saved,) = hosts.get(f"/checkpoints/jobs/{job}")["items"]
    hosts.put(f"/training/jobs/{job}/resume")
    hosts.wait_for_step(job, saved["step"] + 5)
    points = hosts.points(job, "weight")
    steps = [step for step, _ in points]
    assert steps == list(range(1, len(steps) + 1)), "no step was lost, none was taken twice"
    # Each step adds 1 of rank 0 and 2 of rank 1, before and after the pause.
    assert [weight for _, weight in points] == [3.0 * step for step in steps]


def test_script_over_hosts_pauses_by_itself_at_its_step(hosts: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    # The second rank does not say which step it is at.
    path.write_text(SCRIPT.replace("    th.report(", "    if here.rank == 0: th.report("))
    job = hosts.submit(
        {
            "name": "by itself",
            "script": {"path": str(path), "env": {"OMP_NUM_THREADS": "1"}},
            "resources": {"workers": 2, "device": "cpu"},
            "training": {"pause_at": [7, 30]},
            "recovery": {"max_restarts": 0},
        }
    )
    for step in (7, 30):
        paused = hosts.wait_for(job, "paused")
        assert paused["reason"] == f"paused at step {step}, as training.pause_at says"
        newest, *_ = hosts.get(f"/checkpoints/jobs/{job}")["items"]
        assert newest["step"] == step
        hosts.put(f"/training/jobs/{job}/resume")
    hosts.wait_for_step(job, 35)
    points = hosts.points(job, "weight")
    assert [step for step, _ in points] == list(range(1, len(points) + 1))
    assert [weight for _, weight in points] == [3.0 * step for step, _ in points]
