"""The weights of a checkpoint as one file that plain PyTorch loads."""

import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from support.cluster.attempts import RankServer
from support.storage.data_files import SMALL_TEXT
from torch import nn
from typer.testing import CliRunner

from trainhall.cli.base.errors import CliError, UsageError
from trainhall.cli.main import app
from trainhall.training.checkpoint import export as exporting
from trainhall.training.checkpoint.checkpointer import Checkpointer
from trainhall.training.checkpoint.export import export
from trainhall.training.checkpoint.format.errors import BadCheckpointError, NoModelError
from trainhall.training.common.weights_hash import weights_sha256
from trainhall.training.fencing import FencingToken
from trainhall.training.spec.parse import validate_spec
from trainhall.training.tasks import build_task

JOB = {
    "name": "export",
    "task": {
        "name": "language_model",
        "params": {"files": SMALL_TEXT, "size": "tiny", "context": 8},
    },
    "training": {"steps": 2, "global_batch_size": 24, "seed": 5},
}


@pytest.mark.parametrize(
    ("workers", "parallelism"),
    [
        (3, {"strategy": "fsdp"}),
        (4, {"strategy": "fsdp", "tensor": 2}),
        (2, {"strategy": "pipeline"}),
    ],
)
def test_file_loads_into_the_plain_model(
    ranks: RankServer, tmp_path: Path, workers: int, parallelism: dict[str, Any]
) -> None:
    spec = {**JOB, "resources": {"workers": workers}, "parallelism": parallelism}
    run = ranks.run(tmp_path, spec)
    assert set(run.codes) == {0}, run.stderr()
    file = tmp_path / "model.safetensors"
    exported = export(tmp_path / "checkpoints" / run.event("checkpoint")["name"], file)
    model = build_task(validate_spec(spec)).build_model()
    model.load_state_dict(load_file(file))
    digest = weights_sha256(sorted(model.state_dict().items()))
    assert digest == run.event("completed")["weights_sha256"]
    assert (exported["step"], exported["size"]) == (2, file.stat().st_size)
    assert exported["tensors"] == len(model.state_dict())
    with safe_open(file, framework="pt") as opened:
        assert opened.metadata() == {"format": "pt", "job_id": "job", "step": "2"}


def saved(folder: Path, state: dict[str, Any]) -> Path:
    """The folder of a checkpoint with this state."""
    names: list[str] = []
    checkpointer = Checkpointer(
        folder, FencingToken("job", 1, 1), None, lambda done: names.append(done.name)
    )
    checkpointer.save(1, state)
    checkpointer.wait()
    return folder / names[0]


def test_odd_tensors_keep_names_types_and_bits(tmp_path: Path) -> None:
    tied = torch.randn(4, 3)
    model = {
        "a/b~c": tied,
        "tied": tied,
        "half": torch.randn(3).bfloat16(),
        "scalar": torch.tensor(2.5, dtype=torch.float64),
        "flags": torch.tensor([True, False]),
        "none": torch.empty(0, 2),
        "f8": torch.randn(5).to(torch.float8_e4m3fn),
    }
    export(saved(tmp_path / "c", {"model": model, "optimizer": {"x": tied}}), tmp_path / "m")
    found = load_file(tmp_path / "m")
    assert found.keys() == model.keys()
    for name, tensor in model.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(
            found[name].reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8)
        )


def test_export_finds_a_scripts_model(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    state = {"state": {"model": model.state_dict(), "seen": torch.zeros(1)}}
    export(saved(tmp_path / "c", state), tmp_path / "m")
    nn.Linear(2, 1).load_state_dict(load_file(tmp_path / "m"))
    other = saved(tmp_path / "other", {"state": {"net": model.state_dict(), "seen": tensor()}})
    with pytest.raises(
        NoModelError, match=r"no weights under the key 'model'.* it holds net, seen"
    ):
        export(other, tmp_path / "n")


def tensor() -> torch.Tensor:
    return torch.zeros(1)


def test_failed_export_leaves_nothing(tmp_path: Path) -> None:
    folder = saved(tmp_path / "c", {"model": {"a": tensor()}})
    (tmp_path / "m").write_bytes(b"mine")
    with pytest.raises(FileExistsError, match="nothing is overwritten"):
        export(folder, tmp_path / "m")
    shard = folder / "tensors-00000-00000.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(BadCheckpointError, match=shard.name):
        export(folder, tmp_path / "n")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c", "m"]
    assert (tmp_path / "m").read_bytes() == b"mine"


def test_export_works_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAT, and many a network share."""

    def refuses(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuses)
    folder = saved(tmp_path / "c", {"model": {"weight": torch.ones(3)}})
    exported = tmp_path / "model.safetensors"
    export(folder, exported)
    assert load_file(exported)["weight"].tolist() == [1.0, 1.0, 1.0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "model.safetensors"]
    with pytest.raises(FileExistsError):
        export(folder, exported)


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["ckpt", "export", *map(str, arguments)])


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command's own process would import torch each time."""

    def call(argv: list[str], **options: Any) -> Any:
        assert argv[1:3] == ["-m", exporting.__name__]
        with monkeypatch.context() as patch:
            output, complaint = io.StringIO(), io.StringIO()
            patch.setattr(sys, "argv", argv[2:])
            patch.setattr(sys, "stdout", output)
            patch.setattr(sys, "stderr", complaint)
            code = exporting.main()
        return SimpleNamespace(
            returncode=code, stdout=output.getvalue(), stderr=complaint.getvalue()
        )

    monkeypatch.setattr(subprocess, "run", call)


@pytest.mark.usefixtures("in_this_process")
def test_command_takes_a_folder_with_checkpoints(tmp_path: Path) -> None:
    saved(tmp_path / "out" / "checkpoints", {"model": {"a": tensor()}})
    done = run(tmp_path / "out", tmp_path / "m", "-o", "json")
    assert done.exception is None, done.exception
    exported = json.loads(done.stdout)
    assert (exported["path"], exported["tensors"], exported["step"]) == (str(tmp_path / "m"), 1, 1)
    again = run(tmp_path / "out", tmp_path / "m")
    assert isinstance(again.exception, UsageError)
    assert "already exists" in str(again.exception)
    nowhere = run(tmp_path / "out", tmp_path / "no" / "m")
    assert "is in a folder that does not exist" in str(nowhere.exception)
    empty = run(saved(tmp_path / "c", {"extra": {"a": 1}}), tmp_path / "n")
    assert isinstance(empty.exception, CliError)
    assert "it holds no tensors" in str(empty.exception)
