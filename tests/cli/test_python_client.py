"""A coordinator driven from Python, against a real cluster."""

import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cluster.cluster import Cluster, running_cluster
from support.waiting import eventually

import trainhall as th
from trainhall.client import Client, NotFoundError, UnreachableError, UsageError, WrongStateError

pytestmark = pytest.mark.acceptance

EXAMPLES = Path(__file__).parents[2] / "examples"
QUICK: dict[str, Any] = {
    "name": "quick",
    "task": {"name": "digits"},
    "training": {"steps": 30},
    "checkpoint": {"every_steps": 10},
}
ENDLESS: dict[str, Any] = {
    "name": "endless",
    "task": {"name": "synthetic", "params": {"step_seconds": 0.01}},
    "training": {"steps": 1_000_000},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), slots=4) as running:
        yield running


@pytest.fixture
def client(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setenv("TRAINHALL_URL", cluster.url)
    with th.Client() as client:
        yield client


def test_job_is_submitted_waited_for_and_read(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(QUICK))
    changes = {"training.learning_rate": 1e-05, "name": "by: file", "resources.workers": 2}
    assert client.check(file, changes)["outlook"]["when"] == "now"
    assert capsys.readouterr() == ("", "")
    job = client.submit(file, changes)
    assert (job["name"], job["world_size"]) == ("by: file", 2)
    assert job["spec"]["training"]["learning_rate"] == 1e-05
    job = client.wait(job["id"], timeout=120)
    assert (job["state"], job["step"]) == ("completed", 30)
    curve = client.curve(job["id"], "loss")
    assert [step for step, _ in curve] == list(range(1, 31))
    assert len(client.curve(job["id"], "forward_seconds", rank=1)) == 30
    assert client.curve(job["id"], "nothing") == []
    assert {"loss", "eval_accuracy", "forward_seconds"} <= set(client.metrics(job["id"]))
    assert [c["step"] for c in client.checkpoints(job["id"])] == [30, 20, 10]
    assert "completed" in [e["data"].get("state") for e in client.events(job["id"])]
    assert job["id"] in [each["id"] for each in client.jobs(state="completed")]
    with pytest.raises(WrongStateError, match="completed"):
        client.pause(job["id"])
    # As on the command line, a unique beginning will do.
    short = job["id"][:8]
    assert client.job(short)["id"] == client.wait(short)["id"] == job["id"]
    assert client.curve(short, "loss") == curve
    (newest, *_) = client.checkpoints(short)
    assert client.restore(newest["id"][:10])["id"] == job["id"]
    client.cancel(short)


def test_job_is_commanded(client: Client) -> None:
    job = client.submit(ENDLESS, {"resources.workers": 2})["id"]
    with pytest.raises(TimeoutError, match="is still"):
        client.wait(job, timeout=0.1)
    eventually("it has something to save", lambda: client.job(job)["step"], timeout=60)
    client.pause(job)
    _until(client, job, "paused")
    assert client.resize(job, workers=1)["world_size"] == 1
    resumed = client.resume(job, resources={"workers": 2}, parallelism={"strategy": "fsdp"})
    assert resumed["spec"]["parallelism"]["strategy"] == "fsdp"
    _until(client, job, "running")
    client.cancel(job)
    assert client.wait(job)["state"] == "cancelled"
    (newest, *_) = client.checkpoints(job)
    client.restore(newest["id"], resources={"workers": 1})
    _until(client, job, "running")
    client.cancel(job)
    assert client.wait(job)["world_size"] == 1


def test_client_reads_output_line_by_line(client: Client, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("for i in range(3): print('line', i)")
    job = client.submit({"name": "script", "script": {"path": str(script)}})["id"]
    assert client.wait(job, timeout=60)["state"] == "completed"

    def written() -> list[str]:
        return [line["text"] for line in client.lines(job, rank=0, stream="stdout")]

    eventually("its agent has shipped all", lambda: len(written()) == 3)
    assert written() == ["line 0", "line 1", "line 2"]
    assert list(client.lines(job, stream="stderr")) == []


def test_client_raises_described_errors(client: Client, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"not a valid job spec\n  training.steps: .*given: -1"):
        client.submit({**QUICK, "training": {"steps": -1}})
    with pytest.raises(UsageError, match="there is no file"):
        client.submit(tmp_path / "none.yaml")
    with pytest.raises(UsageError, match="the spec has a value that JSON cannot express"):
        client.submit({**QUICK, "name": object()})
    with pytest.raises(NotFoundError, match="ffffffffffff"):
        client.job("ffffffffffff")
    with pytest.raises(NotFoundError, match="ffffffffffff"):
        client.wait("ffffffffffff")
    with pytest.raises(UsageError, match="is not an id"):
        client.job("../nodes")
    with (
        th.Client("http://127.0.0.1:9") as unreachable,
        pytest.raises(UnreachableError, match=r"127\.0\.0\.1:9"),
    ):
        list(unreachable.jobs())


def test_rest_of_the_api_is_there_too(client: Client) -> None:
    (node,) = client.nodes()
    assert client.request("GET", f"/cluster/nodes/{node['id']}")["name"] == node["name"]
    full = client.submit(QUICK, {"resources.workers": 64})["id"]
    assert [entry["job_id"] for entry in client.queue()] == [full]
    assert client.request("GET", "/cluster/queue", job_id=full)["total"] == 1
    client.cancel(full)


def test_example_of_a_sweep_finds_the_best(cluster: Cluster, tmp_path: Path) -> None:
    short = tmp_path / "digits.yaml"
    short.write_text(yaml.safe_dump({**QUICK, "training": {"steps": 40}}))
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "sweep.py"), str(short), "1e-6", "0.1"],
        env=os.environ | {"TRAINHALL_URL": cluster.url},
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "best: 0.1"


def test_sweep_skips_unfinished_jobs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failed job's metric is nothing to compare, and it may have none at all."""

    class SweepClient:
        def __enter__(self) -> "SweepClient":
            return self

        def __exit__(self, *_: object) -> None: ...

        def submit(self, spec: str, changes: dict[str, Any]) -> dict[str, Any]:
            return {"id": changes["name"]}

        def wait(self, job_id: str) -> dict[str, Any]:
            good = job_id == "sweep 0.1"
            return {
                "id": job_id,
                "state": "completed" if good else "failed",
                "reason": "it broke",
                "main_metric": {"name": "loss", "value": 0.5 if good else 0.25, "goal": "min"},
            }

    monkeypatch.setattr(th, "Client", SweepClient)
    for rates, best in ((["1", "0.1", "9"], "0.1"), (["9"], "none completed")):
        monkeypatch.setattr(sys, "argv", ["sweep.py", "job.yaml", *rates])
        runpy.run_path(str(EXAMPLES / "sweep.py"))
        printed = capsys.readouterr().out.splitlines()
        assert printed[-1] == f"best: {best}"
        assert "9: failed, it broke" in printed


def _until(client: Client, job_id: str, state: str) -> None:
    eventually(f"it is {state}", lambda: client.job(job_id)["state"] == state)
