"""Saving in the background and loading what is good, in one process."""

import copy
import errno
import json
import os
import resource
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support.cluster.forged import forge
from torch import Tensor, nn

from trainhall.training.checkpoint.checkpointer import Checkpointer
from trainhall.training.checkpoint.format.draft import Committed, Draft
from trainhall.training.checkpoint.format.errors import NoGoodCheckpointError, StateMismatchError
from trainhall.training.checkpoint.format.manifest import read_manifest, verify_folder
from trainhall.training.checkpoint.format.names import scan
from trainhall.training.fencing import FencingToken


class Job:
    """A checkpointer of one process, and its callbacks."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.committed: list[Committed] = []
        self.errors: list[Exception] = []
        options.setdefault("token", FencingToken("job", 1, 1))
        options.setdefault("on_commit", self.committed.append)
        options.setdefault("on_error", self.errors.append)
        self.checkpointer = Checkpointer(folder, process_group=None, **options)

    def save(self, step: int, state: dict[str, Any], **options: Any) -> str:
        """Save and wait; the checkpoint's name."""
        self.checkpointer.save(step, state, {"loss": 0.5}, **options)
        self.checkpointer.wait()
        assert not self.errors, self.errors
        return self.committed[-1].name


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path / "checkpoints")


def odd_state() -> dict[str, Any]:
    tied = torch.randn(4, 3)
    return {
        "model": {
            "weight": tied,
            "tied": tied,
            "view": tied[1:],
            "transposed": torch.randn(3, 5).t(),
            "scalar": torch.tensor(2.5, dtype=torch.float64),
            "bf16": torch.randn(3, 2).bfloat16(),
            "f8": torch.randn(4).to(torch.float8_e4m3fn),
            "int64": torch.tensor([-(2**62), 1]),
            "bool": torch.tensor([True, False, True]),
            "empty": torch.empty(0, 3),
            "complex": torch.randn(3, dtype=torch.complex64),
            "conjugate": torch.randn(3, dtype=torch.complex64).conj(),
            "expanded": torch.randn(1, 3).expand(4, 3),
            "nan": torch.tensor([float("nan"), -0.0]),
            "parameter": nn.Parameter(torch.randn(2)),
        },
        "optimizer": {
            "state": {0: {"step": 7, "exp_avg": torch.randn(2)}},
            "param_groups": [{"lr": 0.1, "betas": (0.9, 0.99), "params": [0], "fused": None}],
        },
        "extra": {"sampler": {"epoch": 1, "at": 3}, "scaler": float("inf"), "random": ["a", "b"]},
    }


def blank(state: dict[str, Any]) -> dict[str, Any]:
    """The same form with other contents."""
    empty = copy.deepcopy({k: v for k, v in state.items() if k != "extra"})
    empty["model"] = {name: torch.zeros_like(t) for name, t in state["model"].items()}
    empty["model"]["expanded"] = torch.zeros(4, 3)
    empty["optimizer"]["state"][0] = {"step": 0, "exp_avg": torch.zeros(2)}
    empty["optimizer"]["param_groups"][0] |= {"lr": 0.0, "betas": (0.0, 0.0), "fused": True}
    return empty


def small_state(value: float = 1.0) -> dict[str, Any]:
    return {"model": {"weight": torch.full((8,), value)}, "extra": {"value": value}}


def raw(tensor: Tensor) -> bytes:
    data = tensor.detach().resolve_conj().contiguous().reshape(-1).view(torch.uint8)
    return data.numpy().tobytes()


def test_checkpointer_restores_bit_exactly(job: Job) -> None:
    state = odd_state()
    name = job.save(12, state)
    target = blank(state)
    parameter = target["model"]["parameter"]
    loaded = job.checkpointer.load([name], target)
    assert loaded is not None
    assert (loaded.step, loaded.name, loaded.notes) == (12, name, [])
    assert loaded.extra == state["extra"]
    assert {n: raw(t) for n, t in target["model"].items()} == {
        n: raw(t) for n, t in state["model"].items()
    }
    assert target["model"]["parameter"] is parameter
    optimizer = target["optimizer"]
    assert optimizer["param_groups"] == state["optimizer"]["param_groups"]
    assert optimizer["state"][0]["step"] == 7
    assert torch.equal(optimizer["state"][0]["exp_avg"], state["optimizer"]["state"][0]["exp_avg"])


def test_checkpointer_event_matches_the_files(job: Job) -> None:
    name = job.save(12, small_state())
    [committed] = job.committed
    assert verify_folder(job.folder / name) == []
    event = json.loads(json.dumps(committed.event()))
    files = {file["path"]: file for file in event["files"]}
    assert files.keys() == {p.name for p in (job.folder / name).iterdir()}
    assert event["size"] == sum(p.stat().st_size for p in (job.folder / name).iterdir())
    assert event["metrics"] == {"loss": 0.5}
    manifest = read_manifest(job.folder / name)
    assert (manifest.job_id, manifest.world_size, manifest.mesh) == ("job", 1, {"data": 1})


def test_checkpointer_writes_standard_safetensors(job: Job) -> None:
    name = job.save(12, odd_state())
    tensors = load_file(job.folder / name / "tensors-00000-00000.safetensors")
    assert "model/weight" in tensors
    assert "model/tied" not in tensors
    assert tensors["model/view"].shape == (3, 3)


def test_checkpointer_restores_torch_optimizers(job: Job) -> None:
    def build() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        model(torch.randn(5, 3)).sum().backward()
        optimizer.step()
        return model, optimizer

    model, optimizer = build()
    name = job.save(1, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    other, other_optimizer = build()
    state = {"model": other.state_dict(), "optimizer": other_optimizer.state_dict()}
    job.checkpointer.load([name], state)
    other_optimizer.load_state_dict(state["optimizer"])
    for key, tensor in model.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[key])
    torch.testing.assert_close(other_optimizer.state_dict(), optimizer.state_dict(), rtol=0, atol=0)


def test_checkpointer_saves_state_at_the_call(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    create = Draft.create

    def late(folder: Path, token: FencingToken, step: int) -> Draft:
        assert go.wait(30)
        return create(folder, token, step)

    monkeypatch.setattr(Draft, "create", late)
    state = small_state(1.0)
    job.checkpointer.save(1, state)
    assert job.checkpointer.saving
    state["model"]["weight"].fill_(2.0)
    go.set()
    job.checkpointer.save(3, state)  # waits for the first
    state["model"]["weight"].fill_(3.0)
    job.checkpointer.wait()
    assert not job.checkpointer.saving
    for name, value in (("step-00000001-a1-g1", 1.0), ("step-00000003-a1-g1", 2.0)):
        target = small_state(0.0)
        job.checkpointer.load([name], target)
        assert target["model"]["weight"].tolist() == [value] * 8


def test_memory_is_reused_and_follows_the_shapes(job: Job) -> None:
    for step, size in enumerate((8, 8, 3, 20), start=1):
        state = {"model": {"weight": torch.full((size,), float(step)), "b": torch.zeros(step)}}
        name = job.save(step, state)
        target = {"model": {"weight": torch.zeros(size), "b": torch.ones(step)}}
        job.checkpointer.load([name], target)
        assert target["model"]["weight"].tolist() == [float(step)] * size


def test_preparing_changes_nothing_but_the_time(job: Job) -> None:
    job.checkpointer.prepare(odd_state())
    state = odd_state()
    name = job.save(1, state)
    target = blank(state)
    job.checkpointer.load([name], target)
    assert raw(target["model"]["bf16"]) == raw(state["model"]["bf16"])


def test_checkpointer_skips_a_damaged_checkpoint(job: Job) -> None:
    old, new = job.save(1, small_state(1.0)), job.save(2, small_state(2.0))
    shard = job.folder / new / "tensors-00000-00000.safetensors"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    expected = next(f for f in job.committed[1].files if f.path == shard.name).sha256
    target = small_state(0.0)
    loaded = job.checkpointer.load(["step-00000009-a1-g1", "../x", new, old], target)
    assert loaded is not None
    assert loaded.name == old
    assert loaded.extra == {"value": 1.0}
    assert target["model"]["weight"].tolist() == [1.0] * 8
    assert [(n.name, n.reason) for n in loaded.notes] == [
        ("step-00000009-a1-g1", "gone"),
        ("../x", "mismatch"),
        (new, "damaged"),
    ]
    gone, bad_name, damaged = map(str, loaded.notes)
    assert gone == (
        "step-00000009-a1-g1 was not used: the folder: expected a folder, found nothing"
    )
    assert bad_name == "../x was not used: it is not named like a checkpoint"
    assert damaged.startswith(
        f"{new} was not used: {shard.name}: expected SHA-256 {expected}, found "
    )


def test_checkpointer_reports_unavailable_better_checkpoint(job: Job) -> None:
    old, lacking = job.save(1, small_state(1.0)), {"step-00000009-a1-g1": "it is not in the store"}
    loaded = job.checkpointer.load([old], small_state(0.0), lacking=lacking)
    assert loaded is not None
    (note,) = loaded.notes
    assert note.reason == "missing"
    assert str(note) == (
        "step-00000009-a1-g1 was not used: no host has a good copy: it is not in the store"
    )
    with pytest.raises(NoGoodCheckpointError, match="no host has a good copy"):
        job.checkpointer.load([], small_state(), lacking=lacking)


def test_damaged_one_is_not_read_at_all(job: Job) -> None:
    name = job.save(1, {"model": {"a": torch.ones(3), "b": torch.ones(3)}})
    (job.folder / name / "state.json").write_bytes(b"{}")
    target = {"model": {"a": torch.zeros(3), "b": torch.zeros(3)}}
    with pytest.raises(
        NoGoodCheckpointError, match=r"state\.json: expected \d+ bytes, found 2 bytes"
    ):
        job.checkpointer.load([name], target)
    assert target["model"]["a"].tolist() == [0, 0, 0]


def test_no_names_load_nothing(job: Job) -> None:
    assert job.checkpointer.load([], small_state()) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s["model"].pop("b"), "model/b is in the checkpoint, but not in the model"),
        (lambda s: s["model"].update(c=torch.zeros(1)), "model/c is not in the checkpoint"),
        (
            lambda s: s["model"].update(a=torch.zeros(2, 1)),
            r"model/a has the shape \[2\] in the checkpoint, but \[2, 1\] here",
        ),
        (
            lambda s: s["model"].update(b=torch.zeros(2).double()),
            "model/b has the dtype torch.float32 in the checkpoint, but torch.float64 here",
        ),
        (lambda s: s.update(n=torch.zeros(1)), "n is a plain value in the checkpoint, but a tens"),
        (lambda s: s.pop("n"), "n is in the checkpoint, but not"),
    ],
)
def test_first_difference_is_named(
    job: Job, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    state = {"model": {"a": torch.ones(2), "b": torch.ones(2)}, "n": 1}
    name = job.save(1, state)
    target: dict[str, Any] = {"model": {"a": torch.zeros(2), "b": torch.zeros(2)}, "n": 0}
    change(target)
    with pytest.raises(StateMismatchError, match=f"^{name} does not fit: {message}"):
        job.checkpointer.load([name], target)
    assert target["model"]["a"].sum() == 0


def test_checkpointer_refuses_unsupported_state(job: Job) -> None:
    with pytest.raises(TypeError, match="model/hook is a function"):
        job.checkpointer.save(1, {"model": {"hook": lambda: None}})
    with pytest.raises(TypeError, match="complex128, which safetensors cannot hold"):
        job.checkpointer.save(1, {"model": {"a": torch.zeros(1, dtype=torch.complex128)}})
    with pytest.raises(TypeError, match=r"extra\.a is a bytes"):
        job.checkpointer.save(1, {"extra": {"a": b""}})
    with pytest.raises(TypeError, match="dense"):
        job.checkpointer.save(1, {"model": {"a": torch.zeros(2, 2).to_sparse()}})


def test_metrics_that_are_not_finite_are_left_out(job: Job) -> None:
    job.checkpointer.save(1, small_state(), {"loss": float("nan"), "accuracy": 0.5})
    job.checkpointer.wait()
    assert job.committed[0].metrics == {"accuracy": 0.5}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("call", ["fsync", "mkdir", "rename"])
def test_checkpointer_survives_a_failing_disk(
    job: Job, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    old = job.save(1, small_state(1.0))

    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os if call == "fsync" else Path, call, fail)
    job.checkpointer.save(2, small_state(2.0))
    job.checkpointer.wait()
    monkeypatch.undo()
    [error] = job.errors
    assert isinstance(error, OSError)
    assert error.errno == number
    assert [path.name for path in job.folder.iterdir()] == [old]
    job.errors.clear()
    job.save(3, small_state(3.0))
    assert [found.name.step for found in scan(job.folder)] == [3, 1]


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file of this process may grow beyond 100 kB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.usefixtures("small_files")
def test_write_that_fails_half_way_leaves_nothing(job: Job) -> None:
    old = job.save(1, small_state())
    job.checkpointer.save(2, {"model": {"weight": torch.zeros(100_000)}})
    job.checkpointer.wait()
    [error] = job.errors
    assert isinstance(error, OSError)
    assert error.errno == errno.EFBIG
    assert [path.name for path in job.folder.iterdir()] == [old]


def test_same_step_is_never_saved_over(job: Job) -> None:
    name = job.save(1, small_state(1.0))
    before = {p.name: p.read_bytes() for p in (job.folder / name).iterdir()}
    job.checkpointer.save(1, small_state(2.0))
    job.checkpointer.wait()
    assert isinstance(job.errors[0], FileExistsError)
    assert {p.name: p.read_bytes() for p in (job.folder / name).iterdir()} == before


def test_callback_that_fails_ends_nothing(tmp_path: Path, caplog: Any) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("no one listens")

    job = Job(tmp_path, on_commit=fail, on_error=fail)
    job.checkpointer.save(1, small_state())
    job.checkpointer.wait()
    job.checkpointer.save(1, small_state())
    job.checkpointer.wait()
    assert [found.name.step for found in scan(tmp_path)] == [1]
    assert "checkpoint_callback_failed checkpoint=" in caplog.text
    assert "checkpoint_callback_failed error=" in caplog.text


def test_save_cleans_up_after_dead_attempts(tmp_path: Path) -> None:
    dead = Draft.create(tmp_path, FencingToken("job", 1, 1), 5)
    dead.write("half", [b"half"])
    other = Draft.create(tmp_path, FencingToken("other", 1, 1), 5)
    Job(tmp_path, token=FencingToken("job", 2, 1)).save(6, small_state())
    assert not dead.path.exists()
    assert other.path.exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["shape"].append(2), "chunks"),
        (lambda d: d.update(shape=[9]), "chunks that make up model/weight"),
        (lambda d: d.update(chunks=[]), "chunks that make up model/weight"),
        (lambda d: d["chunks"][0].update(offsets=[1]), "chunks within model/weight"),
        (lambda d: d["chunks"][0].update(offsets=[]), "chunks within model/weight"),
        (lambda d: d["chunks"][0].update(file="../elsewhere"), "listed in the manifest"),
        (lambda d: d["chunks"][0].update(key="other"), "safetensors as listed"),
        (lambda d: d.update(dtype="I32"), r"model/weight as I32 \[8\], found F32 \[8\]"),
        (lambda d: d.update(dtype="pickle"), "a dtype of safetensors"),
    ],
)
def test_files_that_contradict_each_other_are_refused(
    job: Job, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    name = job.save(1, small_state(1.0))
    path = job.folder / name / "state.json"
    document = json.loads(path.read_bytes())
    change(document["tensors"]["model/weight"])
    path.write_text(json.dumps(document))
    forge(job.folder / name)
    target = small_state(0.0)
    with pytest.raises(NoGoodCheckpointError, match=message):
        job.checkpointer.load([name], target)
    assert target["model"]["weight"].tolist() == [0.0] * 8
