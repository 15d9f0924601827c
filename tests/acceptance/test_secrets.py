"""A secret on its way through a real cluster: ranks have it, and nothing else shows it."""

import os
from pathlib import Path
from typing import Any

import pytest
from support.cluster.cluster import Cluster
from support.waiting import eventually

pytestmark = pytest.mark.acceptance

TOKEN = "hf_canary_JX7qvT2mWz"
SECRETS = "/projects/default/secrets"
SCRIPT = """
import os, sys, time
token = os.environ["HF_TOKEN"]
sys.stdout.write("token " + token[:7])
sys.stdout.flush()
sys.stdout.write(token[7:] + "\\nnow\\n")
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
raise ValueError("401 for " + token)
"""


@pytest.mark.parametrize("module_cluster", ["sqlite"], indirect=True)
def test_secret_is_in_its_ranks_alone(shared_cluster: Cluster, tmp_path: Path) -> None:
    cluster = shared_cluster
    (tmp_path / "train.py").write_text(SCRIPT)
    spec = {
        "name": "asks",
        "script": {"path": str(tmp_path / "train.py"), "args": [str(tmp_path / "go")]},
        "secrets": ["HF_TOKEN"],
        "recovery": {"max_restarts": 0},
    }
    refused = cluster.http.post(f"{cluster.url}/api/v1/training/jobs", json=spec)
    assert refused.status_code == 422
    assert "`trainhall secrets set HF_TOKEN --project default`" in refused.json()["detail"]
    cluster.request("PUT", f"{SECRETS}/HF_TOKEN", json={"value": TOKEN})
    job = cluster.submit(spec)
    eventually("its output", lambda: "now" in cluster.log_text(job, 0))
    assert cluster.log_text(job, 0).splitlines() == ["token ***", "now"]
    ranks = cluster.rank_processes(job)
    assert [rank.environ()["HF_TOKEN"] for rank in ranks] == [TOKEN]
    assert _processes_that_show_it() == {rank.pid for rank in ranks}
    assert _files_with_it(cluster) == [], "not even while it runs"

    (tmp_path / "go").touch()
    failed = cluster.wait_for(job, "failed")
    assert "ValueError: 401 for ***;" in failed["reason"]
    eventually("the agent to clean up", lambda: not _attempts(cluster, job))
    assert "ValueError: 401 for ***" in cluster.log_text(job, 0, "stderr")
    assert _files_with_it(cluster) == []
    for path in (
        SECRETS, f"/training/jobs/{job}", f"/training/jobs/{job}/events", "/audit",
        f"/training/jobs/{job}/attempts", f"/training/jobs/{job}/logs",
    ):  # fmt: skip
        reply = cluster.http.get(f"{cluster.url}/api/v1{path}")
        assert reply.is_success
        assert TOKEN not in reply.text, path

    _removed_secret_fails_the_next_attempt(cluster, spec, tmp_path)


def _removed_secret_fails_the_next_attempt(
    cluster: Cluster, spec: dict[str, Any], folder: Path
) -> None:
    (folder / "train.py").write_text("import time\ntime.sleep(600)\n")
    job = cluster.submit({**spec, "recovery": {"grace_seconds": 1, "max_restarts": 3}})
    cluster.wait_for(job, "running")
    cluster.put(f"/training/jobs/{job}/pause")
    cluster.wait_for(job, "paused")
    cluster.request("DELETE", f"{SECRETS}/HF_TOKEN")
    cluster.put(f"/training/jobs/{job}/resume")
    failed = cluster.wait_for(job, "failed")
    assert failed["attempt"] == 2, "another attempt would not find it either"
    assert "secret HF_TOKEN is set neither for project default" in failed["reason"]


def _processes_that_show_it() -> set[int]:
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        for name in ("environ", "cmdline"):
            try:
                shown = (folder / name).read_bytes()
            except OSError:
                continue
            if TOKEN.encode() in shown:
                found.add(int(folder.name))
    return found


def _files_with_it(cluster: Cluster) -> list[Path]:
    """Return the files of coordinator and agent, database and logs too, that hold it."""
    found = []
    for folder, _, names in os.walk(cluster.folder):
        for name in names:
            path = Path(folder, name)
            if path.is_file() and TOKEN.encode() in path.read_bytes():
                found.append(path)
    return found


def _attempts(cluster: Cluster, job: str) -> list[Path]:
    return list((cluster.folder / "agent" / "attempts" / job).glob("a*"))
