"""Jobs in containers: with a fake engine, and with Podman where it is installed."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.archives import archive
from support.cluster.cluster import Cluster, running_cluster
from support.nodes.containers import FakeEngine
from support.nodes.containers import fake_engine as fake_engine
from support.nodes.containers import image as image
from support.waiting import eventually

SCRIPT = """
import os, sys
import trainhall
trainhall.report(loss=0.5, step=1)
print("rank", os.environ["RANK"], os.environ["HELLO"], os.environ["TOKEN"])
print("host" if os.path.exists("/etc/os-release") else "inside")
"""
WAITS = "import time\nprint('begun', flush=True)\ntime.sleep(600)\n"


def spec(cluster: Cluster, program: str, image: str, **more: Any) -> dict[str, Any]:
    sha256, data = archive(**{"train.py": program})
    cluster.request("PUT", f"/training/code/{sha256}", content=data)
    environment = {"image": image, "variables": {"HELLO": "world"}}
    script = {"path": "train.py"}
    return {"name": "in", "code": sha256, "script": script, "environment": environment, **more}


def completes(cluster: Cluster, image: str) -> dict[str, Any]:
    """Run a job of two ranks with a secret; return its environment."""
    cluster.request("PUT", "/projects/default/secrets/TOKEN", json={"value": "se-cr-et-value"})
    wanted = spec(cluster, SCRIPT, image, secrets=["TOKEN"], resources={"workers": 2})
    job = cluster.submit(wanted)
    done = cluster.wait_for(job, "completed")
    assert (done["step"], done["attempt"]) == (1, 1)
    assert "rank 1 world" in cluster.log_text(job, 1)
    assert "se-cr-et" not in cluster.log_text(job, 1)
    found: dict[str, Any] = cluster.get(f"/training/jobs/{job}/environment")
    assert found["kind"] == "image"
    return found | {"log": cluster.log_text(job, 0)}


@pytest.mark.acceptance
def test_job_in_an_image_by_a_fake_engine(tmp_path: Path, fake_engine: FakeEngine) -> None:
    with running_cluster(tmp_path / "cluster") as cluster:
        found = completes(cluster, "lab/train:1")
        assert found["image"].startswith("lab/train@sha256:")
        (started,) = (call for call in fake_engine.calls("run") if "--detach" in call)
        assert not any("se-cr-et" in argument for argument in started)
        failed = cluster.wait_for(cluster.submit(spec(cluster, SCRIPT, "nosuch:1")), "failed")
        assert "image nosuch:1: reading manifest: manifest unknown" in failed["reason"]
        assert failed["attempt"] == 1


@pytest.mark.integration
@pytest.mark.skipif(shutil.which("podman") is None, reason="needs Podman")
def test_job_in_a_container_of_podman(tmp_path: Path, image: str) -> None:
    with running_cluster(tmp_path / "cluster") as cluster:
        found = completes(cluster, image)
        assert found["image"].startswith(image)
        assert found["log"].rstrip().endswith("inside")
        job = cluster.submit(spec(cluster, WAITS, image, recovery={"max_restarts": 0}))
        eventually("its begin", lambda: "begun" in cluster.log_text(job, 0))
        assert job in containers()
        cluster.agent.kill()
        cluster.agent.start()
        eventually("the node to be ready", cluster.node_is_ready)
        assert job in containers()
        cluster.request("DELETE", f"/training/jobs/{job}")
        cluster.wait_for(job, "cancelled")
        eventually("its container to go", lambda: job not in containers())


def containers() -> str:
    command = ["podman", "ps", "--all", "--format", "{{.Names}}"]
    return subprocess.check_output(command, text=True)
