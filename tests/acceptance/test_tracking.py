"""MLflow's API and TensorBoard's files within a job: nothing is lost, whatever is away."""

from pathlib import Path

import pytest
from support.archives import archive
from support.cluster.cluster import Cluster
from support.waiting import eventually

pytestmark = pytest.mark.acceptance

SCRIPT = """
import json, os, sys, time, urllib.request
from pathlib import Path

def post(name, **body):
    request = urllib.request.Request(
        os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/" + name,
        json.dumps({"run_id": os.environ["MLFLOW_RUN_ID"], **body}).encode(),
        {"Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]},
    )
    urllib.request.urlopen(request).read()

def log(steps):
    for step in steps:
        post("runs/log-metric", key="train/loss", value=1 / step, step=step, timestamp=5000)

if os.environ["TRAINHALL_ATTEMPT"] == "1":
    post("runs/log-parameter", key="depth", value="12")
    post("runs/set-tag", key="team", value="a")
    log(range(1, 6))
    gate = Path(sys.argv[1])
    while not gate.exists():
        time.sleep(0.01)
    start = time.monotonic()
    log(range(6, 51))
    print("seconds", time.monotonic() - start, flush=True)
    sys.exit(1)
post("runs/log-metric", key="n", value=1)  # a constant: of no step
log(range(41, 61))
"""


@pytest.mark.parametrize("killed_cluster", ["sqlite"], indirect=True)
def test_metrics_outlive_coordinator_and_attempt(cluster: Cluster, tmp_path: Path) -> None:
    script, gate = tmp_path / "train.py", tmp_path / "gate"
    script.write_text(SCRIPT)
    job = cluster.submit(
        {
            "name": "tracked",
            "script": {"path": str(script), "args": [str(gate)]},
            "parameters": {"lr": 0.1},
            "recovery": {"max_restarts": 1},
        }
    )
    eventually("the first steps", lambda: len(cluster.points(job, "train/loss")) == 5)
    cluster.coordinator.kill()
    gate.touch()
    cluster.start_coordinator()
    done = cluster.wait_for(job, "completed")
    # The second attempt starts again from step 41, whatever it has logged at no step before.
    expected = [(step, 1 / step) for step in range(1, 61)]
    eventually("all steps, once", lambda: cluster.points(job, "train/loss") == expected)
    assert done["parameters"] == {"lr": 0.1, "depth": 12}
    assert done["mlflow_tags"] == {"team": "a"}
    assert float(cluster.log_text(job, 0).split()[1]) < 5


WRITER = """
import os, sys, time
from pathlib import Path
from support.storage.event_files import append_scalars

def log(steps):
    name = f"events.out.tfevents.{int(time.time())}.a.b.{os.getpid()}.0"
    path = Path("runs", f"now-{os.getpid()}", name)
    append_scalars(path, "train/loss", [(step, 1 / step) for step in steps], time=time.time())

if os.environ["TRAINHALL_ATTEMPT"] == "1":
    log(range(1, 6))
    while not Path(sys.argv[1]).exists():
        time.sleep(0.01)
    log(range(6, 51))
    sys.exit(1)
assert len(list(Path("runs").iterdir())) == 1, "what the first attempt wrote is there again"
log(range(41, 61))
"""


@pytest.mark.parametrize("killed_cluster", ["sqlite"], indirect=True)
def test_event_files_become_curves_across_attempts(cluster: Cluster, tmp_path: Path) -> None:
    sha256, data = archive(**{"train.py": WRITER})
    cluster.request("PUT", f"/training/code/{sha256}", content=data)
    gate = tmp_path / "gate"
    job = cluster.submit(
        {
            "name": "event files",
            "script": {
                "path": "train.py",
                "args": [str(gate)],
                "env": {"PYTHONPATH": str(Path(__file__).parents[1])},
            },
            "code": sha256,
            "recovery": {"max_restarts": 1},
        }
    )
    eventually("the first steps", lambda: len(cluster.points(job, "train/loss")) == 5)
    cluster.agent.kill()
    gate.touch()
    cluster.agent.start()
    cluster.wait_for(job, "completed")
    # A file has four bytes for a value.
    found = cluster.points(job, "train/loss")
    assert [step for step, _ in found] == list(range(1, 61))
    assert all(abs(value * step - 1) < 1e-6 for step, value in found)
