"""Code in git through a real cluster: cloned once, fixed to a commit, and a clear end without."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cluster.cluster import Cluster, running_cluster
from support.forking import forks
from support.git.repositories import Repository, git_server

pytestmark = pytest.mark.acceptance

TOKEN = "glpat_canary/Xq7:mWz"
SCRIPT = """
import os, pathlib, subprocess, sys
import model
commit = subprocess.check_output(["git", "rev-parse", "HEAD"], text=True).strip()
print(model.NAME, sys.argv[1], commit, os.environ.get("LAB"))
pathlib.Path("result.txt").write_text("done")
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), forks_scripts=True) as running:
        yield running


def command(cluster: Cluster, name: str, *arguments: str) -> str:
    options = [name, "--url", cluster.url, "-o", "json"]
    done = forks.run(forks.TRAINHALL, [*options, *arguments], timeout=120)
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["id"])


def joined(cluster: Cluster, name: str) -> dict[str, str]:
    """The credential of another node."""
    node = cluster.post("/cluster/nodes", json={"name": name})
    request = {
        "join_token": node["join_token"], "name": name, "address": "127.0.0.1",
        "agent_version": "0.1.0", "devices": [],
    }  # fmt: skip
    credential = cluster.post("/agent/join", json=request)["credential"]
    return {"Authorization": f"Bearer {credential}"}


def test_job_from_git_is_fixed_to_a_commit(cluster: Cluster, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "served" / "lab")
    first = repository.commit(train=SCRIPT, model="NAME = 'one'\n")
    cluster.request("PUT", "/projects/default/secrets/LAB", json={"value": TOKEN})
    with git_server(tmp_path / "served", TOKEN) as server:
        url = f"{server.url}/lab/.git"
        job = command(
            cluster, "submit", "--git", url, "--ref", "main", "--set", "code.token=LAB",
            "train.py", "--", "7",
        )  # fmt: skip
        cluster.wait_for(job, "completed")
        assert cluster.log_text(job, 0) == f"one 7 {first} None"
        found = cluster.get(f"/training/jobs/{job}/provenance")
        assert found["git"]["commit"] == first
        assert (found["git"]["branch"], found["git"]["remote"]) == ("main", url)
        outputs = cluster.get(f"/outputs/jobs/{job}")["items"]
        assert [each["path"] for each in outputs] == ["result.txt"]

        stranger = joined(cluster, "stranger")
        path = f"{cluster.url}/api/v1/agent/jobs/{job}/attempts/1/commit"
        for method in ("GET", "PUT"):
            refused = cluster.http.request(method, path, headers=stranger, json={})
            assert refused.status_code == 404
            assert "on this node" in refused.json()["detail"]

        repository.commit(model="NAME = 'two'\n")
        again = command(cluster, "reproduce", job)
        cluster.wait_for(again, "completed")
        assert cluster.log_text(again, 0) == f"one 7 {first} None"
        newer = command(cluster, "submit", "--git", url, "--set", "code.token=LAB", "train.py",
            "--", "8")  # fmt: skip
        cluster.wait_for(newer, "completed")
        assert cluster.log_text(newer, 0).startswith("two 8")

        code = {"git": url, "ref": "nosuch", "token": "LAB"}
        spec = {"name": "x", "script": {"path": "train.py"}, "recovery": {"max_restarts": 3}}
        asks = {"git": url}
        away = {"git": "http://127.0.0.1:9/lab"}
        for wrong, words in (
            (code, "has no branch, tag or commit nosuch: couldn't find remote ref nosuch"),
            (asks, "terminal prompts disabled; the repository is private or does not exist"),
            (away, "unable to access"),
        ):
            failed = cluster.wait_for(cluster.submit({**spec, "code": wrong}), "failed")
            assert words in failed["reason"]
            assert failed["attempt"] == 1
    left = [
        p for p in cluster.folder.rglob("*") if p.is_file() and TOKEN.encode() in p.read_bytes()
    ]
    assert left == []
