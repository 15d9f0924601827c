"""MLflow's own clients, of versions 2 and 3, against a coordinator: runs that run elsewhere."""

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from trainhall.cluster.api_paths import API_PREFIX

pytestmark = [pytest.mark.integration, pytest.mark.processes]

MLFLOW2 = Path(__file__).parents[4] / ".venv-mlflow2" / "bin" / "python"
SCRIPT = """
import math, sys
import mlflow
from mlflow import MlflowClient

assert mlflow.__version__.split(".")[0] == sys.argv[1]
mlflow.set_experiment("digits")
with mlflow.start_run(run_name="first") as run:
    mlflow.log_params({"lr": "0.10", "optimizer": "adam"})
    mlflow.set_tag("team", "a")
    for step in range(1, 6):
        mlflow.log_metric("train/loss", 1 / step, step=step)
    mlflow.log_metrics({"val/acc": 0.5, "val/bad": math.nan}, step=5)
    mlflow.log_text("hello", "notes/a.txt")
    with mlflow.start_run(nested=True, run_name="fold 1"):
        mlflow.log_metric("acc", 0.3, step=1)
try:
    with mlflow.start_run(run_name="second"):
        mlflow.log_param("lr", "0.2")
        raise KeyError
except KeyError:
    pass
client = MlflowClient()
found = client.get_run(run.info.run_id)
assert found.data.params == {"lr": "0.10", "optimizer": "adam"}, found.data.params
assert found.data.tags["team"] == "a" and found.info.status == "FINISHED"
assert found.data.metrics["train/loss"] == 0.2 and math.isnan(found.data.metrics["val/bad"])
history = client.get_metric_history(run.info.run_id, "train/loss")
assert [(point.step, point.value) for point in history] == [(n, 1 / n) for n in range(1, 6)]
assert [f.path for f in client.list_artifacts(run.info.run_id)] == ["notes"]
assert mlflow.artifacts.load_text(found.info.artifact_uri + "/notes/a.txt") == "hello"
ids = [found.info.experiment_id]
listed = client.search_runs(ids, "attributes.status = 'FINISHED'", order_by=["metrics.acc ASC"])
assert [each.info.run_name for each in listed] == ["fold 1", "first"]
failed = client.search_runs(ids, "params.lr = '0.2'")[0]
assert failed.info.status == "FAILED"
client.delete_run(failed.info.run_id)
assert len(client.search_runs(ids)) == 2
client.set_terminated(client.create_run("0", run_name="third").info.run_id, "KILLED")
"""


@pytest.mark.parametrize("version", ["2", "3"])
def test_clients_log_and_read_runs(url: str, tmp_path: Path, version: str) -> None:
    assert version == "3" or MLFLOW2.is_file(), "`make integrations` installs MLflow 2"
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    python = sys.executable if version == "3" else str(MLFLOW2)
    done = subprocess.run(
        [python, str(script), version],
        env={**os.environ, "MLFLOW_TRACKING_URI": url, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"},
        capture_output=True, text=True, timeout=240, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    jobs = httpx.get(f"{url}{API_PREFIX}/training/jobs").json()["items"]
    assert {job["name"]: (job["kind"], job["state"], job["group"]) for job in jobs} == {
        "first": ("run", "completed", "digits"),
        "fold 1": ("run", "completed", "digits"),
        "third": ("run", "cancelled", None),
    }
