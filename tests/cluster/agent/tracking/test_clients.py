"""The real clients, unchanged, in a job: MLflow's own API, and the libraries that log by it."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.cluster.agent_process import script
from support.cluster.attempts import read_tables
from support.cluster.shims import Run, shims

from trainhall.cluster.agent.event_files import tail
from trainhall.cluster.agent.event_files.tail import EventFileTail
from trainhall.training.link.folder import Writer
from trainhall.training.link.status import Outcome

pytestmark = [pytest.mark.integration, pytest.mark.processes]

ROOT = Path(__file__).parents[4]
MLFLOW2 = ROOT / ".venv-mlflow2" / "bin" / "python"
FLUENT = """
import math, os, sys, time
import mlflow
from mlflow import MlflowClient

assert mlflow.__version__.split(".")[0] == sys.argv[1]
mlflow.set_experiment("an experiment")
with mlflow.start_run(run_name="a run") as run:
    assert run.info.run_id == os.environ["TRAINHALL_JOB_ID"]
    mlflow.log_params({"lr": 0.1, "optimizer": "adam"})
    mlflow.set_tag("team", "a")
    for step in range(1, 6):
        mlflow.log_metric("train/loss", 1 / step, step=step)
    mlflow.log_metrics({"val/acc": 0.5, "val/bad": math.nan}, step=5)
    mlflow.log_dict({"a": 1}, "conf/a.json")
    mlflow.log_text("hello", "notes ü.txt")
    client = MlflowClient()
    assert [f.path for f in client.list_artifacts(run.info.run_id)] == ["conf", "notes ü.txt"]
    assert [f.path for f in client.list_artifacts(run.info.run_id, "conf")] == ["conf/a.json"]
    assert mlflow.artifacts.load_text(run.info.artifact_uri + "/notes ü.txt") == "hello"
    history = client.get_metric_history(run.info.run_id, "train/loss")
    assert [point.step for point in history] == [1, 2, 3, 4, 5]
    found = client.get_run(run.info.run_id).data
    assert found.params == {"lr": "0.1", "optimizer": "adam"} and found.tags["team"] == "a"
    assert found.metrics["train/loss"] == 0.2 and math.isnan(found.metrics["val/bad"])
    with mlflow.start_run(nested=True, run_name="fold 1"):
        mlflow.log_metric("acc", 0.3, step=1)
assert len(mlflow.search_runs(output_format="list")) == 2
start = time.monotonic()
try:
    mlflow.register_model("runs:/x/model", "a model")
except mlflow.exceptions.MlflowException as error:
    assert "MLFLOW_TRACKING_URI" in str(error), error
assert time.monotonic() - start < 5
"""
LIGHTNING = """
import sys
import lightning.pytorch as pl
import mlflow
import torch
from lightning.pytorch.loggers import MLFlowLogger

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.save_hyperparameters({"width": 4})

    def training_step(self, batch, index):
        loss = self.layer(batch[0]).pow(2).mean()
        self.log("train/loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

def fit(**options):
    data = torch.utils.data.TensorDataset(torch.randn(32, 4))
    pl.Trainer(
        max_epochs=2, log_every_n_steps=1, enable_progress_bar=False, accelerator="cpu",
        enable_checkpointing=False, **options,
    ).fit(Model(), torch.utils.data.DataLoader(data, batch_size=8))

if sys.argv[1] == "logger":
    import os
    fit(logger=MLFlowLogger(tracking_uri=os.environ["MLFLOW_TRACKING_URI"]))
else:
    mlflow.pytorch.autolog(log_models=False)
    fit(logger=False)
"""
HUGGING_FACE = """
import sys
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
model = BertForSequenceClassification(BertConfig(intermediate_size=16, vocab_size=50, **size))
data = [{"input_ids": torch.arange(8), "labels": torch.tensor(i % 2)} for i in range(32)]
arguments = TrainingArguments(
    sys.argv[1], report_to="mlflow", logging_steps=2, max_steps=8, save_strategy="no", use_cpu=True
)
Trainer(model, arguments, train_dataset=data).train()
"""
TENSORBOARD = """
import numpy
from torch.utils.tensorboard import SummaryWriter

with SummaryWriter() as writer:
    for step in range(1, 6):
        writer.add_scalar("train/loss", 1 / step, step)
        writer.add_scalar("val/acc", step / 10, step, new_style=True)
    writer.add_image("image", numpy.zeros((3, 400, 400)), 5)
    writer.add_text("text", "hello", 5)
    writer.add_histogram("weights", numpy.arange(100), 5)
    writer.add_scalar("train/loss", 0.1, 6)
    writer.add_scalars("both", {"a": 1.0, "b": 2.0}, 6)
    writer.add_hparams({"lr": 0.1, "layers": 4}, {"hparam/acc": 0.5}, run_name="hp")
"""


class Logged:
    """What a client has logged in a job."""

    def __init__(self, run: Run) -> None:
        folder, writer = run.folder, Writer(0, 1)
        assert run.wait().outcome is Outcome.COMPLETED, folder.stderr(0).read_text()[-3000:]
        self.metrics: dict[str, list[int]] = {}
        for _, columns in read_tables(folder.tracked_metrics(writer).read_bytes()):
            for name, points in columns.items():
                self.metrics.setdefault(name, []).extend(step for step, _ in points)
        self.parameters: dict[str, str] = {}
        for line in folder.tracked_events(writer).read_text().splitlines():
            self.parameters |= json.loads(line)["data"]["parameters"]


@pytest.fixture
def log(tmp_path: Path) -> Any:
    with shims(tmp_path) as run:

        def log(text: str, *arguments: str, interpreter: str | None = None) -> Logged:
            spec = script(tmp_path, text, *arguments)
            if interpreter is not None:
                spec["script"]["interpreter"] = interpreter
            return Logged(run(spec))

        yield log


@pytest.mark.parametrize("version", ["2", "3"])
def test_fluent_api_logs_into_the_job(log: Any, version: str) -> None:
    assert version == "3" or MLFLOW2.is_file(), "`make integrations` installs MLflow 2"
    found = log(FLUENT, version, interpreter=str(MLFLOW2) if version == "2" else None)
    assert found.metrics == {
        "train/loss": [1, 2, 3, 4, 5],
        "val/acc": [5],
        "val/bad": [5],
        "fold-1/acc": [1],
    }
    assert found.parameters == {"lr": "0.1", "optimizer": "adam"}


def test_lightning_logger_logs_into_the_job(log: Any) -> None:
    found = log(LIGHTNING, "logger")
    assert found.metrics["train/loss"] == list(range(8))
    assert found.parameters["width"] == "4"


def test_autolog_logs_into_the_job(log: Any) -> None:
    found = log(LIGHTNING, "autolog")
    assert found.metrics["train/loss"]
    assert "lr" in found.parameters


def test_hugging_face_trainer_logs_into_the_job(log: Any, tmp_path: Path) -> None:
    found = log(HUGGING_FACE, str(tmp_path / "out"))
    assert found.metrics["loss"] == [2, 4, 6, 8]
    assert found.parameters["max_steps"] == "8"


def test_event_files_of_pytorch_are_read(tmp_path: Path) -> None:
    with shims(tmp_path) as run:
        one: Run = run(script(tmp_path, f"import os\nos.chdir({str(tmp_path)!r})\n" + TENSORBOARD))
        assert one.wait().outcome is Outcome.COMPLETED, one.folder.stderr(0).read_text()[-3000:]
    tail.prepare(one.folder, one.launch)
    (tmp_path / "runs").rename(one.folder.path / "outputs")
    followed = EventFileTail.open(one.folder, one.launch)
    assert followed is not None
    while followed.poll(ended=True):
        pass
    found: dict[str, list[int]] = {}
    for rank, columns in read_tables(one.folder.file_metrics.read_bytes()):
        assert rank is None
        for name, points in columns.items():
            found.setdefault(name, []).extend(step for step, _ in points)
    assert found == {
        "train/loss": [1, 2, 3, 4, 5, 6],
        "val/acc": [1, 2, 3, 4, 5],
        "both_a/both": [6],
        "both_b/both": [6],
        "hp/hparam/acc": [0],
    }
    (event,) = map(json.loads, one.folder.file_events.read_text().splitlines())
    assert event["data"]["parameters"] == {"lr": "0.1", "layers": "4"}
