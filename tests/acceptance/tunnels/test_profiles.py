"""Profiles of running jobs: from the request to the trace that is downloaded."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from support.cluster.agent_process import script
from support.cluster.cluster import Cluster
from support.forking import forks

from trainhall.client import Client

pytestmark = pytest.mark.acceptance

SCRIPT = """
import time
import torch
import trainhall as th
th.init()
weight = torch.ones(64, 64, requires_grad=True)
while not th.should_stop():
    (weight @ weight).sum().backward()
    th.report(loss=1.0)
    time.sleep(0.01)
"""
TASK = {
    "task": {"name": "synthetic", "params": {"step_seconds": 0.02, "hidden": [8]}},
    "training": {"steps": 1_000_000, "global_batch_size": 32},
    # What users ask for is kept whatever the job keeps of its own files.
    "outputs": {"include": ["*.pt"]},
}


def profiled(cluster: Cluster, spec: dict[str, Any]) -> Any:
    """The profile of 5 steps of a job with two ranks, by the command line."""
    job = cluster.submit({"name": "paced", **spec, "resources": {"workers": 2}})
    cluster.wait_for_step(job, 2)
    command = ["profile", job, "--url", cluster.url, "--steps", "5", "-o", "json"]
    done = forks.run(forks.TRAINHALL, command)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_traces_of_task_and_script_are_downloaded(
    cluster_of_its_own: Cluster, tmp_path: Path
) -> None:
    cluster = cluster_of_its_own
    for spec in (TASK, script(tmp_path, SCRIPT)):
        profile = profiled(cluster, spec)
        assert (profile["state"], profile["problems"]) == ("completed", [])
        steps = {(trace["first_step"], trace["last_step"]) for trace in profile["traces"]}
        ((first, last),) = steps
        assert last == first + 4
        with Client(cluster.url) as client:
            for rank, trace in enumerate(profile["traces"]):
                packed = client.read_output(profile["job_id"], trace["path"])
                events = json.loads(gzip.decompress(packed))["traceEvents"]
                assert any(event.get("name") == "aten::mm" for event in events), rank
        job = cluster.job(profile["job_id"])
        assert (job["state"], job["attempt"]) == ("running", 1)
        (row,) = cluster.get("/audit", params={"action": "job.profile", "limit": 1})["items"]
        assert (row["object"], row["detail"]) == (job["id"], "5 steps of ranks 0, 1")
        cluster.request("DELETE", f"/training/jobs/{job['id']}")
        cluster.wait_for(job["id"], "cancelled")
