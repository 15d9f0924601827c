"""A coordinator driven from Python, against a real cluster."""

from collections.abc import Callable, Iterator
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
    "task": {"name": "synthetic", "params": {"step_seconds": 0.1}},
    "training": {"steps": 1_000_000},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(
        tmp_path_factory.mktemp("cluster"), slots=4, forks_scripts=True
    ) as running:
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
    assert job["id"] in [each["id"] for each in client.jobs(state=["completed"], search=job["id"])]
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
    eventually("it has something to save", lambda: client.job(job)["step"])
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
    with pytest.raises(NotFoundError, match=r"there is no job '\.\./nodes'"):
        client.job("../nodes")
    with (
        th.Client("http://127.0.0.1:9") as unreachable,
        pytest.raises(UnreachableError, match=r"127\.0\.0\.1:9"),
    ):
        list(unreachable.jobs())


@pytest.mark.parametrize("wait", [th.Client.wait, th.Client.wait_for_experiment])
def test_wait_times_out_without_a_coordinator(wait: Callable[..., object]) -> None:
    with (
        th.Client("http://127.0.0.1:9") as unreachable,
        pytest.raises(TimeoutError, match=r"the coordinator did not answer about \w+ 3f2a: no"),
    ):
        wait(unreachable, "3f2a", timeout=0.0)


def test_rest_of_the_api_is_there_too(client: Client) -> None:
    (node,) = client.nodes()
    assert client.request("GET", f"/cluster/nodes/{node['id']}")["name"] == node["name"]
    full = client.submit(QUICK, {"resources.workers": 64})["id"]
    assert [entry["job_id"] for entry in client.queue()] == [full]
    assert {line["name"] for line in client.ledger("project")} <= {"default"}
    assert client.request("GET", "/cluster/queue", job_id=full)["total"] == 1
    client.cancel(full)


def test_example_of_a_sweep_finds_the_best(client: Client) -> None:
    example = yaml.safe_load((EXAMPLES / "experiments" / "learning_rate.yaml").read_text())
    example["job"]["training"]["steps"] = 60
    made = client.create_experiment({**example, "parallel": 4})
    assert made["counts"] == {"pending": 6}
    short = made["id"][:8]
    done = client.wait_for_experiment(short, timeout=180)
    assert (done["state"], done["counts"]) == ("completed", {"completed": 6})
    trials = list(client.trials(short))
    assert [(t["number"], t["repeat"]) for t in trials] == [
        (n, r) for n in (1, 2, 3) for r in (1, 2)
    ]
    assert done["best"]["trial"] in (2, 3), "the lowest rate learns nothing in so few steps"
    objectives = [t["objective"] for t in trials if t["number"] == done["best"]["trial"]]
    assert done["best"]["value"] == pytest.approx(sum(objectives) / 2)
    seeds = [client.job(t["job_id"])["spec"]["training"]["seed"] for t in trials[:2]]
    assert seeds == [0, 1]
    assert made["id"] in [each["id"] for each in client.experiments(limit=1)]
    analysis = client.analyze_experiment(short)
    assert (analysis["best"]["trial"], analysis["is_final"]) == (done["best"]["trial"], True)
    assert client.experiment_report(short, "html").startswith("<!doctype html>")
    with pytest.raises(WrongStateError, match="completed, which is final"):
        client.cancel_experiment(short)


def test_example_of_early_stopping_ends_with_one_complete_run(client: Client) -> None:
    example = yaml.safe_load((EXAMPLES / "experiments" / "early_stopping.yaml").read_text())
    made = client.create_experiment({**example, "parallel": 4})
    done = client.wait_for_experiment(made["id"], timeout=180)
    assert (done["state"], done["counts"]) == ("completed", {"completed": 1, "stopped": 8})
    assert done["steps"] == {"taken": 6 * 20 + 2 * 60 + 180, "in_full": 9 * 180}
    trials = list(client.trials(made["id"]))
    assert sorted((t["rung"], t["step"]) for t in trials) == [
        *[(1, 20)] * 6, *[(2, 60)] * 2, (3, 180),
    ]  # fmt: skip
    (best,) = (t for t in trials if t["state"] == "completed")
    assert done["best"]["trial"] == best["number"]


def test_benchmark_example_has_a_row_per_cell(client: Client) -> None:
    example = yaml.safe_load((EXAMPLES / "experiments" / "benchmark.yaml").read_text())
    example["job"]["training"]["steps"] = 20
    example["space"] = {"resources.workers": [1, 2, 3]}
    example["baseline"] = {"resources.workers": 1}
    made = client.create_experiment({**example, "repeats": 1})
    done = client.wait_for_experiment(made["id"], timeout=180)
    # Three workers cannot share a batch of 64.
    assert (done["state"], done["counts"]) == ("completed", {"completed": 2, "failed": 1})
    table = client.analyze_experiment(made["id"])["table"]
    assert [(row["strategy"], row["workers"], row["state"]) for row in table] == [
        ("ddp", 1, "completed"), ("ddp", 2, "completed"), ("ddp", 3, "failed"),
    ]  # fmt: skip
    assert [row["is_baseline"] for row in table] == [True, False, False]
    assert table[1]["ratio"] == pytest.approx(table[1]["objective"] / table[0]["objective"])
    assert "batch size 64 is not divisible by 3" in table[2]["reason"]


def test_scaling_example_has_strong_and_weak_curves(client: Client) -> None:
    example = yaml.safe_load((EXAMPLES / "experiments" / "scaling.yaml").read_text())
    example["job"]["training"]["steps"] = 20
    made = client.create_experiment({**example, "repeats": 1})
    client.wait_for_experiment(made["id"], timeout=180)
    strong, weak = client.analyze_experiment(made["id"])["scaling"]
    for curve, batch in ((strong, 64), (weak, 128)):
        base, double = curve["points"]
        assert (base["workers"], base["speedup"], base["batch_size"]) == (1, 1, 64)
        assert (double["workers"], double["batch_size"]) == (2, batch)
        assert double["speedup"] == pytest.approx(double["speed"] / base["speed"])


def test_experiment_is_commanded(client: Client, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(ENDLESS))
    sweep = {
        "name": "endless", "kind": "sweep", "job": "job.yaml", "method": "grid", "parallel": 1,
        "space": {"training.learning_rate": [0.1, 0.2]}, "objective": {"metric": "loss"},
    }  # fmt: skip
    file = tmp_path / "sweep.yaml"
    file.write_text(yaml.safe_dump(sweep))
    experiment = client.create_experiment(file)["id"]
    with pytest.raises(TimeoutError, match="still running"):
        client.wait_for_experiment(experiment, timeout=0.1)
    (job, waiting) = (t["job_id"] for t in client.trials(experiment))
    assert waiting is None
    eventually("it has something to save", lambda: client.job(job)["step"])
    client.pause_experiment(experiment)
    _until(client, job, "paused")
    client.resume_experiment(experiment)
    _until(client, job, "running")
    client.cancel_experiment(experiment)
    assert client.wait_for_experiment(experiment, timeout=60)["counts"] == {"cancelled": 2}
    with pytest.raises(UsageError, match=r"space\.training\.learning_rate: must be more than 0"):
        client.create_experiment(
            {**sweep, "job": ENDLESS, "space": {"training.learning_rate": [-1]}}
        )
    (tmp_path / "job.yaml").write_text("name: x")
    with pytest.raises(UsageError, match=r"the job in .*job\.yaml is not a valid job spec"):
        client.create_experiment(file)


def _until(client: Client, job_id: str, state: str) -> None:
    eventually(f"it is {state}", lambda: client.job(job_id)["state"] == state)
