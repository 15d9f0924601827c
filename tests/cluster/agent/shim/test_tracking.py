"""The tracking server that a shim has for its ranks: found by variables, there when needed."""

import json
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.cluster.agent_process import launch_of, script
from support.cluster.attempts import read_tables
from support.cluster.shims import Run

from trainhall.cluster.agent.shim.tracking import RUN, TOKEN, URI, open_tracking
from trainhall.training.link.folder import AttemptFolder, Writer
from trainhall.training.link.status import Outcome

CLIENT = """
import json, os, time, urllib.error, urllib.request
from pathlib import Path

def log(step):
    body = {"run_id": os.environ["MLFLOW_RUN_ID"], "key": "train/loss", "value": 1 / step,
            "step": step, "timestamp": 5000}
    request = urllib.request.Request(
        os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/runs/log-metric",
        json.dumps(body).encode(),
        {"Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]},
    )
    urllib.request.urlopen(request).read()

def wait_for(path):
    while not Path(path).exists():
        time.sleep(0.01)
"""
KILLED = """
log(1)
log(2)
print("logged", flush=True)
wait_for("go")
log(2)
log(3)
"""


@pytest.mark.processes
def test_killed_tracking_server_is_replaced(run: Any, tmp_path: Path) -> None:
    one: Run = run(script(tmp_path, CLIENT + KILLED))
    one.wait_for_output(b"logged")
    (server,) = (
        process
        for process in psutil.Process(one.process.pid).children()
        if process.pid != one.status.ranks[0].pid
    )
    server.kill()
    (tmp_path / "go").touch()
    assert one.wait().outcome is Outcome.COMPLETED, one.folder.stderr(0).read_text()
    tables = read_tables(one.folder.tracked_metrics(Writer(0, 1)).read_bytes())
    points = [point for _, columns in tables for point in columns["train/loss"]]
    assert points == [(1, 1.0), (2, 0.5), (3, 1 / 3)]


@pytest.mark.processes
def test_jobs_without_clients_start_no_server(run: Any, tmp_path: Path) -> None:
    waiting = 'import os\nprint(sorted(os.environ), flush=True)\nwait_for("go")\n'
    one: Run = run(script(tmp_path, CLIENT + waiting, workers=2))
    one.wait_for_output(b"MLFLOW_RUN_ID")
    children = psutil.Process(one.process.pid).children()
    assert {child.pid for child in children} == {rank.pid for rank in one.status.ranks}
    (tmp_path / "go").touch()
    one.wait()


@pytest.fixture
def folder(tmp_path: Path) -> AttemptFolder:
    return AttemptFolder(tmp_path)


def test_variables_leave_jobs_own_server(folder: AttemptFolder) -> None:
    tracking = open_tracking(folder, launch_of({"script": {"path": "/x.py"}}))
    assert tracking is not None
    assert folder.trackers() == [Writer(0, 1)]
    assert tracking.variables(0, {URI: "http://mine"}) == {}
    found = [tracking.variables(rank, {"http_proxy": "p", "NO_PROXY": "a.b"}) for rank in (0, 1)]
    assert found[0][RUN] == "job"
    assert found[0][TOKEN] != found[1][TOKEN]
    assert found[0]["no_proxy"] == found[0]["NO_PROXY"] == "a.b,127.0.0.1"
    assert "no_proxy" not in tracking.variables(0, {})
    tracking.close()
    assert json.dumps(found).count(found[0][URI]) == 2


def test_hosts_without_ranks_have_no_server(folder: AttemptFolder) -> None:
    assert open_tracking(folder, launch_of({"script": {"path": "/x.py"}}, ranks=[])) is None
