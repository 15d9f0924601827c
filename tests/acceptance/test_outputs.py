"""A script that knows nothing of Trainhall writes snapshots to its folder, and finds them again."""

from pathlib import Path

import pytest
from support.archives import archive
from support.cluster.cluster import Cluster, running_cluster
from support.forking import forks
from support.waiting import eventually

pytestmark = pytest.mark.acceptance

SCRIPT = """
import hashlib, json, os, sys, time
first = 0
if os.path.exists("state.json"):
    state = json.load(open("state.json"))
    snapshot = open("snapshot.pt", "rb").read()
    assert hashlib.sha256(snapshot).hexdigest() == state["sha256"], "half a snapshot"
    assert open(os.environ["TRAINHALL_OUTPUTS"] + "/note").read() == "kept"
    first = state["epoch"] + 1
    print("resumed at epoch", first, flush=True)
open(os.environ["TRAINHALL_OUTPUTS"] + "/note", "w").write("kept")
for epoch in range(first, first + 3):
    snapshot = os.urandom(32 * 2**20)
    open("snapshot.part", "wb").write(snapshot)
    os.replace("snapshot.part", "snapshot.pt")
    state = {"epoch": epoch, "sha256": hashlib.sha256(snapshot).hexdigest()}
    open("state.part", "w").write(json.dumps(state))
    os.replace("state.part", "state.json")
    print("epoch", epoch, flush=True)
if first == 0:
    time.sleep(1000)
"""

LARGE = 128 * 2**20
IS_KILLED = """
import hashlib, os, sys, time
if os.path.exists("first"):
    large = open("large", "rb").read()
    assert open("first").read() == hashlib.sha256(large).hexdigest()
    print("both are whole", flush=True)
    sys.exit()
large = os.urandom(128 * 2**20)
open("first", "w").write(hashlib.sha256(large).hexdigest())
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
open(sys.argv[1] + ".part", "wb").write(large)
os.replace(sys.argv[1] + ".part", "large")
time.sleep(1000)
"""


def test_snapshots_move_to_another_host_whatever_is_killed(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "cluster", slots=1) as cluster:
        sha256, data = archive(**{"train.py": SCRIPT})
        cluster.request("PUT", f"/training/code/{sha256}", content=data)
        job = cluster.submit({"name": "snapshots", "script": {"path": "train.py"}, "code": sha256})
        eventually("three epochs", lambda: "epoch 2" in cluster.log_text(job, 0))
        stored = cluster.folder / "coordinator" / "outputs" / job
        cluster.put(f"/training/jobs/{job}/pause")
        eventually("an upload", lambda: any(stored.glob("*.part")), every=0.002)
        cluster.agent.kill()
        cluster.coordinator.kill()
        cluster.start_coordinator()
        assert cluster.job(job)["state"] == "pausing"
        cluster.agent.start()
        cluster.wait_for(job, "paused")
        assert len(list(stored.iterdir())) == 3, "a snapshot, its state, the note, and no part"

        start_other_agent(cluster)
        cluster.put(f"/training/jobs/{job}/resume")
        done = cluster.wait_for(job, "completed")
        assert done["attempt"] == 2
        assert "resumed at epoch 3" in cluster.log_text(job, 0)
        assert len(list(stored.iterdir())) == 3, "what was replaced is gone"


def test_killed_rank_loses_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(forks.EAGER_OUTPUTS, "yes")
    with running_cluster(tmp_path / "cluster", slots=1) as cluster:
        sha256, data = archive(**{"train.py": IS_KILLED})
        cluster.request("PUT", f"/training/code/{sha256}", content=data)
        gate = tmp_path / "gate"
        script = {"path": "train.py", "args": [str(gate)]}
        job = cluster.submit({"name": "killed", "script": script, "code": sha256})
        stored = cluster.folder / "coordinator" / "outputs" / job

        def sizes() -> dict[str, int]:
            files = cluster.get(f"/outputs/jobs/{job}")["items"]
            return {file["path"]: file["size"] for file in files}

        eventually("the first file", lambda: sizes() == {"first": 64})
        gate.touch()
        eventually("an upload", lambda: any(stored.glob("*.part")), every=0.002)
        (rank,) = cluster.rank_processes(job)
        rank.kill()
        assert sizes().get("large", LARGE) == LARGE, "half a file is shown"
        done = cluster.wait_for(job, "completed")
        assert done["attempt"] == 2
        assert "both are whole" in cluster.log_text(job, 0)
        assert sizes() == {"first": 64, "large": LARGE}
        assert len(list(stored.iterdir())) == 2


def start_other_agent(cluster: Cluster) -> None:
    """Have another host, which has nothing of the first, take its place."""
    assert cluster.agent.stop() == 0
    token = cluster.post("/cluster/nodes", json={"name": "there"})["join_token"]
    cluster.agent.arguments = [
        "agent", "--coordinator", cluster.url, "--token", token,
        "--data-dir", str(cluster.folder / "other"), "--slots", "1",
    ]  # fmt: skip
    cluster.agent.start()
