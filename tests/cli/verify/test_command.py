"""`trainhall verify`: strategies beside one process, as a user runs it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.forking import forks
from support.storage.data_files import write_images, write_mnist, write_text
from support.waiting import eventually

pytestmark = pytest.mark.acceptance

MLP = """
name: mlp
task: {name: digits, params: {hidden: [18, 12], dropout: 0.2}}
training: {global_batch_size: 24, gradient_clip: 0.5, gradient_accumulation: 2}
"""
# Each strategy meets another bug: DDP leaves a layer out of its all-reduce, FSDP adds instead of
# averaging, tensor parallelism clips by the norm of a rank's own part, and a stage dies.
PLANTED = """
import os

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from trainhall.parallelism.data_parallel import ddp
from trainhall.parallelism.data_parallel.fsdp import FullyShardedData
from trainhall.parallelism.tensor import TensorParallel
from trainhall.task import Declaration, Split, Task, TensorData

average, apply = FullyShardedData.average_gradients, ddp.apply


def added(self):
    average(self)
    for parameter in self.parameters.values():
        parameter.grad *= self.degrees.samples


def by_local_norm(self, largest):
    return nn.utils.clip_grad_norm_(list(self.parameters.values()), largest)


def without_a_layer(model, **options):
    DDP._set_params_and_buffers_to_ignore_for_model(model, ["2.weight"])
    return apply(model, **options)


class Planted(Task):
    def __init__(self, params, job):
        draw = torch.Generator().manual_seed(0)
        self.train_data = TensorData(
            torch.randn(40, 6, generator=draw), torch.randn(40, 2, generator=draw)
        )
        self.strategy = job.parallelism.strategy

    def build_model(self):
        match self.strategy:
            case "ddp":
                ddp.apply = without_a_layer
            case "fsdp":
                FullyShardedData.average_gradients = added
            case "tensor":
                TensorParallel.clip = by_local_norm
            case "model":
                os.abort()
        return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))

    def declaration(self):
        return Declaration(
            layers=(("0", "1"), ("2",)), splits=(Split("0", "2", parts=8, what="hidden units"),)
        )

    def loss(self, model, batch):
        inputs, targets = batch
        return nn.functional.mse_loss(model(inputs), targets), ()
"""
NORMED = """
import torch
from torch import nn

from trainhall.task import Declaration, Task, TensorData


class Normed(Task):
    def __init__(self, params, job):
        draw = torch.Generator().manual_seed(0)
        self.train_data = TensorData(
            torch.randn(60, 6, generator=draw), torch.randn(60, 2, generator=draw)
        )

    def build_model(self):
        layers = [(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Tanh()) for _ in range(3)]
        return nn.Sequential(*(module for layer in layers for module in layer), nn.Linear(6, 2))

    def declaration(self):
        return Declaration(layers=(("0", "1", "2"), ("3", "4", "5"), ("6", "7", "8"), ("9",)))

    def loss(self, model, batch):
        inputs, targets = batch
        return nn.functional.mse_loss(model(inputs), targets), ()
"""
# The logistic map doubles a difference at each turn, and so any rounding.
CHAOTIC = """
import torch
from torch import nn

from trainhall.task import Task, TensorData


class Chaotic(Task):
    def __init__(self, params, job):
        draw = torch.Generator().manual_seed(0)
        self.train_data = TensorData(
            torch.randn(40, 6, generator=draw), torch.randn(40, 2, generator=draw)
        )

    def build_model(self):
        return nn.Linear(6, 2)

    def loss(self, model, batch):
        inputs, targets = batch
        outputs = model(inputs).sigmoid()
        for _ in range(40):
            outputs = 3.99 * outputs * (1 - outputs)
        return nn.functional.mse_loss(outputs, targets), ()
"""
JOB = """
name: planted
task: {name: "planted:Planted"}
code: .
training: {global_batch_size: 8, optimizer: sgd, learning_rate: 0.1, gradient_clip: 0.1}
"""

Process = forks.Fork | subprocess.Popen[str]
Start = Callable[..., Process]


DDP_ON_TWO = [
    "data 2", "data 2, ring", "data 2, tree", "data 2, halving_doubling", "data 2, hierarchical",
    "data 2, parameter_server", "data 2, naive", "data 2, fp16", "data 2, bf16",
    "data 2, topk at ratio 1", "data 2, powersgd at ratio 1",
]  # fmt: skip


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts `trainhall verify` on a spec in `tmp_path`; nothing of it may be left behind.

    With `forked=False` as a user's shell does.
    """
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    started: list[Process] = []

    def starter(text: str, *arguments: str, forked: bool = True) -> Process:
        spec = tmp_path / "job.yaml"
        spec.write_text(text)
        asked = ["verify", str(spec), *arguments]
        env = {**os.environ, "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"}
        process: Process
        if forked:
            process = forks.start(files, forks.COMMAND, asked, env=env)
        else:
            process = executed(asked, env)
        started.append(process)
        return process

    with ExitStack() as files:
        yield starter
        for process in started:
            if process.poll() is None:
                process.kill()
                process.communicate()
    eventually("every process to end", lambda: not processes_in(temporary))


def executed(arguments: list[str], env: dict[str, str]) -> Process:
    return subprocess.Popen(
        [sys.executable, "-m", "trainhall.cli.main", *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=env, start_new_session=True,
    )  # fmt: skip


def processes_in(folder: Path) -> list[psutil.Process]:
    """Shims and ranks, by their arguments and marks, and the warm parent, by its environment."""
    found = []
    for process in psutil.process_iter():
        try:
            arguments = [*process.cmdline(), *process.environ().values()]
        except psutil.Error:
            continue
        if any(text.startswith(str(folder)) for text in arguments):
            found.append(process)
    return found


def wait_for_steps(temporary: Path) -> None:
    """Until the baseline has taken its first; torch is imported before."""
    eventually(
        "the baseline's steps",
        lambda: any(temporary.glob("*/serial/*.safetensors")),
        timeout=90,
    )


def finished(process: Process) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    assert "Traceback" not in err
    return process.returncode, out, err


def agreeing(start: Start, text: str, *arguments: str) -> dict[str, Any]:
    """By strategy and mesh, what was compared; all of it agrees."""
    code, out, err = finished(start(text, "-o", "json", *arguments))
    assert code == 0, out + err
    document = json.loads(out)
    assert document["agree"]
    return {
        f"{r['strategy']}, {r['mesh']}": r
        for r in document["results"]
        if r["verdict"] != "does not fit"
    }


def test_verify_compares_mlp_under_every_strategy(start: Start, tmp_path: Path) -> None:
    plot = tmp_path / "errors.svg"
    arguments = "--strategies", "ddp,tensor,pipeline", "--workers", "2", "--steps", "4"
    code, out, err = finished(start(MLP, "-o", "json", *arguments, "--plot", str(plot)))
    assert code == 0, err
    assert err.startswith("Comparing 14 of 18 meshes with one process over 4 steps of mlp in")
    document = json.loads(out)
    assert document["tolerance"] == {"loss": 1e-9, "gradient": 1e-9, "weight": 1e-9}
    results = {(r["strategy"], r["mesh"]): r for r in document["results"]}
    assert [k for k, r in results.items() if r["verdict"] == "agrees"] == [
        *(("ddp", mesh) for mesh in DDP_ON_TWO),
        ("tensor", "tensor 2"),
        ("pipeline", "pipeline 2"),
        ("pipeline", "pipeline 2, gpipe"),
    ]
    ddp = results["ddp", "data 2"]
    assert [error["step"] for error in ddp["errors"]] == [1, 2, 3, 4]
    assert ddp["loss"] < 1e-13
    assert ddp["weight"] < 1e-13
    assert ddp["first"] is None
    assert results["pipeline", "pipeline 2, zbv"]["reason"] == (
        "the model has 3 layers, fewer than the 4 stages of pipeline 2 × 2 stages per rank; choose "
        "a smaller degree, or a schedule with one stage per rank"
    )
    # Only the compared step is reported for what rounds gradients.
    for mesh, bound in (("data 2, fp16", "2e-03"), ("data 2, bf16", "2e-02")):
        rounded = results["ddp", mesh]
        first, *others = rounded["errors"]
        assert rounded["compared_steps"] == 1
        assert rounded["gradient"] == first["gradient"] <= float(bound)
        assert max(error["gradient"] for error in others) > 1e-9
        assert rounded["tolerance"].endswith(
            f"is compared, with tolerances of 1e-05 for the loss and {bound} for gradients"
        )
    assert (ddp["compared_steps"], ddp["tolerance"]) == (None, "")
    assert "<svg" in plot.read_text()


@pytest.mark.slow
def test_cnn_is_compared(start: Start, tmp_path: Path) -> None:
    write_mnist(tmp_path / "MNIST" / "raw")
    spec = "{name: cnn, task: {name: mnist, params: {root: .}}, training: {global_batch_size: 8}}"
    found = agreeing(start, spec, "--strategies", "ddp,model", "--workers", "2", "--steps", "3")
    assert set(found) == {*(f"ddp, {mesh}" for mesh in DDP_ON_TWO), "model, pipeline 2"}


@pytest.mark.slow
def test_resnet_is_compared(start: Start, tmp_path: Path) -> None:
    write_images(tmp_path / "images", each=5)
    spec = """
    name: resnet
    task: {name: image_folder, params: {root: images, image_size: 16}}
    training: {global_batch_size: 4, learning_rate: 1.0e-4}
    """
    found = agreeing(start, spec, "--strategies", "fsdp", "--workers", "2", "--steps", "2")
    assert found["fsdp, shard 2"]["baseline_microbatches"] == 2


def test_verify_measures_batch_norm_per_part(start: Start, tmp_path: Path) -> None:
    (tmp_path / "normed.py").write_text(NORMED)
    spec = """
    name: normed
    task: {name: "normed:Normed"}
    code: .
    resources: {workers: 2}
    parallelism: {strategy: pipeline, microbatches: 4}
    training: {global_batch_size: 24}
    """
    found = agreeing(start, spec, "--steps", "4")
    parts = {name: result["baseline_microbatches"] for name, result in found.items()}
    # A task that declares its layers is spread by whatever needs no more than that.
    assert parts == {
        **{f"ddp, {mesh}": 2 for mesh in DDP_ON_TWO},
        "fsdp, shard 2": 2,
        "fsdp, shard 2, no resharding": 2,
        "pipeline, pipeline 2": 4,
        "pipeline, pipeline 2, gpipe": 4,
        "pipeline, pipeline 2, interleaved_1f1b": 4,
        "pipeline, pipeline 2, interleaved_zero_bubble": 4,
        "pipeline, pipeline 2, zbv": 4,
        "model, pipeline 2": 1,
        "parameter_server, 1 server": 1,
    }


def test_verify_compares_gpt_on_2d_meshes(start: Start, tmp_path: Path) -> None:
    write_text(tmp_path / "text.txt")
    spec = """
    name: gpt
    task: {name: language_model, params: {files: text.txt, size: tiny, context: 8}}
    training: {global_batch_size: 8}
    """
    found = agreeing(start, spec, "--strategies", "tensor", "--workers", "4", "--steps", "3")
    assert set(found) == {
        "tensor, tensor 2 × data 2", "tensor, tensor 2 × data 2, sequence parallel",
    }  # fmt: skip


def test_planted_bugs_are_found_and_their_layers_named(start: Start, tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text(PLANTED)
    arguments = "--strategies", "ddp,fsdp,tensor,pipeline,model", "--workers", "2", "--steps", "2"
    code, out, err = finished(start(JOB, *arguments))
    assert code == 1, err
    rows = {line.split("  ")[0]: " ".join(line.split()) for line in out.splitlines()}
    assert rows["ddp"].endswith("differs layer 2, step 1: gradient of weight")
    assert rows["fsdp"].endswith("differs layer 2, step 1: gradient of bias")
    # The gradients are right, and what is made of them is not.
    assert rows["tensor"].endswith("differs layer 0, step 1: weight")
    assert "pipeline pipeline 2" in rows["pipeline"]
    assert rows["pipeline"].endswith("agrees —")
    assert rows["model"].endswith("failed —")
    assert "model, pipeline 2 failed: rank " in out
    assert "SIGABRT" in out
    # A task of one's own is checked by its ranks.
    assert "\n      the model has 2 layers, fewer than the 4 stages of pipeline 2 × 2" in out


def test_verify_allows_for_growing_rounding(start: Start, tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text(CHAOTIC)
    # With small steps the last digits of gradients change those of no weight on some processors.
    job = JOB.replace("planted:Planted", "planted:Chaotic").replace("clip: 0.1", "clip: 10")
    code, out, err = finished(
        start(job, "--strategies", "fsdp", "--workers", "2", "--steps", "4", "-o", "json")
    )
    assert code == 1, err
    results = json.loads(out)["results"]
    assert {result["verdict"] for result in results} == {"unclear"}
    assert all("also differs from itself when" in result["reason"] for result in results)
    assert err.count("differ in their last digits") == 1


def test_interrupted_verify_leaves_nothing(start: Start, tmp_path: Path) -> None:
    process = start(MLP, "--strategies", "ddp", "--workers", "2", "--steps", "1000000")
    temporary = tmp_path / "temporary"
    wait_for_steps(temporary)
    process.send_signal(signal.SIGINT)
    code, out, err = finished(process)
    assert (code, out) == (130, "")
    assert err.endswith("Stopped.\n")
    assert list(temporary.glob("trainhall-verify-*")) == []


def test_killed_verify_leaves_no_process(start: Start, tmp_path: Path) -> None:
    arguments = "--strategies", "ddp", "--workers", "2", "--steps", "1000000"
    process = start(MLP, *arguments, forked=False)
    temporary = tmp_path / "temporary"
    wait_for_steps(temporary)
    assert processes_in(temporary)
    process.kill()
    process.communicate()


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (MLP, ["--strategies", "dpp"], "--strategies: 'dpp' is unknown; known: ddp, fsdp, "),
        (MLP, ["--plot", "errors.txt"], "--plot writes .png, .svg or .pdf files, not 'errors.txt'"),
        (
            MLP,
            ["--set", "resources.workers=12"],
            "resources.workers is 12, but one host compares at most 8 ranks",
        ),
        (
            "{name: a, script: {path: a.py}}",
            [],
            "a script parallelizes its model itself",
        ),
        (MLP, ["--strategies", "tensor", "--workers", "5"], "no strategy fits this job and number"),
    ],
)
def test_verify_refuses_wrong_input(
    start: Start, text: str, arguments: list[str], message: str
) -> None:
    code, _, err = finished(start(text, *arguments))
    assert code == 2
    assert message in err
