"""The real trainers in a job: paused, they save and stop; the next attempt continues there."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.cluster.agent_process import script
from support.cluster.attempts import read_tables
from support.cluster.shims import Run, shims
from support.waiting import eventually

from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.launch import Command
from trainhall.training.link.status import Outcome

pytestmark = [pytest.mark.integration, pytest.mark.processes]

HUGGING_FACE = """
import sys, time
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from trainhall.integrations.transformers import TrainhallCallback, newest_checkpoint

class Slow(TrainerCallback):
    def on_step_end(self, *_, **__):
        time.sleep(0.01)

size = {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 50, "n_positions": 16}
data = [{"input_ids": torch.arange(8), "labels": torch.arange(8)} for _ in range(64)]
arguments = TrainingArguments(
    "out", report_to="none", logging_steps=1, max_steps=int(sys.argv[1]), save_strategy="no",
    use_cpu=True, per_device_train_batch_size=4, disable_tqdm=True,
)
callbacks = [TrainhallCallback(), Slow()]
model = GPT2LMHeadModel(GPT2Config(**size))
trainer = Trainer(model, arguments, train_dataset=data, callbacks=callbacks)
trainer.train(resume_from_checkpoint=newest_checkpoint("out"))
"""
LIGHTNING = """
import sys, time
import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import CSVLogger

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        time.sleep(0.01)
        loss = self.layer(batch[0]).pow(2).mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)

data = torch.utils.data.TensorDataset(torch.randn(320, 4))
trainer = pl.Trainer(
    accelerator="cpu", devices=2, strategy="ddp", max_steps=int(sys.argv[1]), log_every_n_steps=1,
    enable_progress_bar=False, logger=CSVLogger("."),
)
trainer.fit(Model(), torch.utils.data.DataLoader(data, batch_size=4))
"""


def steps_of(folder: AttemptFolder) -> list[int]:
    path = folder.metrics(0)
    tables = read_tables(path.read_bytes()) if path.exists() else ()
    return [step for _, columns in tables for step, _ in columns.get("loss", [])]


def events_of(folder: AttemptFolder) -> list[dict[str, Any]]:
    return [json.loads(line) for line in folder.events(0).read_text().splitlines()]


@pytest.mark.parametrize(
    ("text", "first", "lag"), [(HUGGING_FACE, 1, 0), (LIGHTNING, 0, 1)], ids=["hf", "lightning"]
)
def test_paused_trainer_resumes(text: str, first: int, lag: int, tmp_path: Path) -> None:
    """
    Args:
        first: number of the first step.
        lag: of a step's number behind the count of steps.
    """
    with shims(tmp_path) as run:
        one: Run = run(script(tmp_path, text, "100000", workers=2))
        eventually("ten steps", lambda: len(steps_of(one.folder)) > 10)
        one.send_command(Command.PAUSE)
        assert one.wait().outcome is Outcome.PAUSED, one.folder.stderr(0).read_text()[-3000:]
        done = steps_of(one.folder)
        assert done == list(range(first, first + len(done)))
        (note,) = (e["data"]["message"] for e in events_of(one.folder) if e["kind"] == "note")
        assert "from which it resumes by itself" in note

        def restore(folder: AttemptFolder) -> None:
            for name in ("out", "outputs", "lightning_logs"):
                if (one.folder.path / name).exists():
                    shutil.copytree(one.folder.path / name, folder.path / name)

        spec = script(tmp_path, text, str(len(done) + 20), workers=2)
        two: Run = run(spec, attempt=2, before=restore)
        assert two.wait().outcome is Outcome.COMPLETED, two.folder.stderr(0).read_text()[-3000:]
        assert steps_of(two.folder) == list(range(done[-1] + 1, done[-1] + 21))
        started = [e["data"] for e in events_of(two.folder) if e["kind"] == "started"]
        assert started[-1]["resumed_from"] == len(done) - lag
