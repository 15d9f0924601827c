"""Every `curl` line of docs/rest-api.md, run as it stands against a real cluster."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cluster.cluster import Cluster, running_cluster
from support.cluster.web import bearer
from support.forking import forks
from support.waiting import eventually
from websockets.sync.client import connect

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.skipif(shutil.which("curl") is None, reason="NO CURL HERE: its lines are not run"),
]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "rest-api.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, re.S)
# A line that ends with \ goes on in the next one.
LINES = [
    re.sub(r"\s+#.*", "", line)
    for block in BLOCKS
    for line in block.replace("\\\n", " ").splitlines()
    if line.startswith("curl ")
]
(WITH_LOGIN,) = re.findall(r"^curl\(\).*$", PAGE, re.M)
"""The page's own function that sends the credential."""
QUICK = {"name": "quick", "task": {"name": "digits"}, "training": {"steps": 10},
         "checkpoint": {"every_steps": 5}}  # fmt: skip


def login_once(cluster: Cluster) -> Path:
    """A folder with a `trainhall` that repeats what `login --print-header` prints for a cluster:
    starting the real one costs more than each request does."""
    programs = cluster.folder / "programs"
    programs.mkdir()
    env = {**os.environ, "TRAINHALL_URL": cluster.url}
    real = forks.run(forks.TRAINHALL, ["login", "--print-header"], env=env)
    assert real.returncode == 0, real.stderr
    (programs / "header").write_text(real.stdout)
    stub = programs / "trainhall"
    stub.write_text(f'#!/bin/sh\ntest "$*" = "login --print-header" && cat {programs}/header\n')
    stub.chmod(0o755)
    return programs


class Reader:
    """Someone who tries the page from top to bottom, and puts in ids as they come up."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        script = cluster.folder / "endless.py"
        script.write_text("import time\nprint('begun', flush=True)\ntime.sleep(1000)\n")
        self.finished = cluster.submit(QUICK)
        cluster.wait_for(self.finished, "completed")
        self.job = cluster.submit({"name": "endless", "script": {"path": str(script)}})
        eventually("its output", lambda: cluster.log_text(self.job, 0))
        self.host = cluster.get("/cluster/nodes")["items"][0]["id"]
        self.experiment = self.alert = self.report = ""
        self.node = cluster.post("/cluster/nodes", json={"name": "registered"})["id"]
        self._programs = login_once(cluster)

    def run(self, line: str) -> None:
        if line.endswith("/resume") and "training/jobs" in line:
            self._cluster.wait_for(self.job, "paused")
        if '"archived"' in line and "training/jobs" in line:
            self._cluster.wait_for(self.job, "cancelled")
        listed = self._cluster.get(f"/checkpoints/jobs/{self.finished}")["items"]
        known = {
            "training/jobs": self.job, "metrics/jobs": self.job,
            "experiments": self.experiment,
            "alerts": self.alert,
            "reports": self.report,
            "cluster/nodes": self.host if "/history" in line else self.node,
            "checkpoints": next(c["id"] for c in reversed(listed) if c["state"] == "committed"),
        }  # fmt: skip
        command = re.sub(
            r"(training/jobs|metrics/jobs|cluster/nodes|checkpoints|experiments|alerts|reports)/ID",
            lambda found: f"{found[1]}/{known[found[1]]}",
            # A position that this job's output has.
            line.replace("at=1.0.stdout.4096", "at=1.0.stdout.0")
            .replace("jobs/JOB", f"jobs/{self.finished}")
            .replace("other=OTHER", f"other={self.finished}"),
        )
        assert not re.search(r"/(ID|JOB)\b", command), f"no id is known for {line}"
        done = subprocess.run(
            ["bash", "-c", WITH_LOGIN.replace("-H", "-sS --fail-with-body -H", 1) + f"\n{command}"],
            capture_output=True, text=True, check=False, cwd=ROOT,
            env={
                "API": f"{self._cluster.url}/api/v1",
                "PATH": f"{self._programs}:/bin:/usr/bin:/usr/local/bin",
            },
        )  # fmt: skip
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        texts = {"format=html": "<!doctype html>", "format=csv": "job", "/download": "begun"}
        for form, start in texts.items():
            if form in line:
                assert done.stdout.startswith(start), (line, done.stdout)
                return
        answer: Any = json.loads(done.stdout) if done.stdout else None
        if "POST $API/experiments " in line:
            self.experiment = answer["id"]
        if "POST $API/alerts " in line:
            self.alert = answer["id"]
        if "POST $API/reports " in line:
            self.report = answer["id"]
        self.check(line, answer)

    def check(self, line: str, answer: Any) -> None:
        if "/nodes/" in line and line.endswith("/events"):
            assert answer["items"], line  # the last ones; there are no more pages
        elif "?limit" in line or line.endswith(("/events", "/attempts", "/queue", "/nodes")):
            more = {"total"} if line.endswith("/queue") else set()
            more |= {"hint"} if "/training/jobs?limit" in line else set()
            assert set(answer) == {"items", "next_cursor"} | more, line


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # One job at a time: what the page submits need not run.
    with running_cluster(tmp_path_factory.mktemp("cluster"), slots=1) as running:
        yield running
        running.cancel_everything()


def test_rest_page_commands_work_in_order(cluster: Cluster) -> None:
    reader = Reader(cluster)
    assert len(LINES) >= 15
    for line in LINES:
        reader.run(line)
    # What commands have done shows that they were more than answered.
    assert cluster.get(f"/experiments/{reader.experiment}")["state"] == "cancelled"
    assert cluster.job(reader.job)["state"] in ("cancelling", "cancelled")
    assert "registered" not in [n["name"] for n in cluster.get("/cluster/nodes")["items"]]
    eventually("the restored job", lambda: cluster.job(reader.finished)["attempt"] == 2)


def test_websocket_line_streams_frames(cluster: Cluster) -> None:
    cluster.cancel_everything()  # what the page submits would run first
    job = cluster.submit(QUICK)
    (address,) = re.findall(r'connect\(\s*"(ws:[^"]+)"', PAGE)
    url = address.replace("/ID?", f"/{job}?")
    url = url.replace("ws://127.0.0.1:8000", cluster.url.replace("http", "ws"))
    seen: dict[str, int] = {}
    with connect(url, additional_headers=bearer(cluster.folder / "coordinator")) as stream:
        while seen.get("state", 0) < 4:
            frame = json.loads(stream.recv(60))
            assert frame["seq"] > seen.get("seq", 0)
            seen["seq"] = frame["seq"]
            seen[frame["type"]] = seen.get(frame["type"], 0) + 1
    assert seen["metrics"]
