"""What the ranks of the checkpoint tests do. Each function runs in every rank."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from trainhall.distributed import process_group
from trainhall.distributed.environment import RankEnvironment
from trainhall.training.checkpoint import loader
from trainhall.training.checkpoint.checkpointer import Checkpointer
from trainhall.training.checkpoint.format.draft import Committed, Draft
from trainhall.training.checkpoint.format.errors import (
    NoGoodCheckpointError,
    Problem,
    StateMismatchError,
)
from trainhall.training.checkpoint.format.manifest import FileRecord, verify_files
from trainhall.training.checkpoint.format.names import scan
from trainhall.training.common import random_state
from trainhall.training.fencing import FencingToken

CPU = torch.device("cpu")
TOKEN = FencingToken("job", 1, 1)


def as_rank(work: Callable[[Path, int], None]) -> Callable[[Path], int]:
    def run(folder: Path) -> int:
        torch.set_num_threads(1)
        environment = RankEnvironment.read(os.environ)
        with process_group.joined(environment, device=CPU, namespace=work.__name__):
            work(folder, environment.rank)
        return 0

    return run


def build() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Linear(7, 3))


def names(folder: Path) -> list[str]:
    return [found.path.name for found in scan(folder)]


@as_rank
def replicate(folder: Path, rank: int) -> None:
    """Save while training's collectives go on; random numbers go on after the load."""
    group = process_group.cpu_group()
    committed: list[Committed] = []
    checkpointer = Checkpointer(folder / "checkpoints", TOKEN, group, committed.append)
    model = build()
    random_state.seed_everything(100 + rank)
    for step in range(1, 4):
        states: list[Any] = [None] * dist.get_world_size(group)
        dist.all_gather_object(states, random_state.capture(CPU), group=group)
        expected = torch.rand(4)
        extra = {"random": states}
        checkpointer.save(step, {"model": model.state_dict(), "extra": extra})
        for _ in range(50):
            total = torch.tensor([float(rank)])
            dist.all_reduce(total, group=group)
            assert total.item() == sum(range(dist.get_world_size(group)))
        checkpointer.wait()
    assert [c.step for c in committed] == ([1, 2, 3] if rank == 0 else [])
    dist.barrier(group)
    target = {"model": {name: torch.zeros_like(t) for name, t in model.state_dict().items()}}
    loaded = checkpointer.load(names(folder / "checkpoints"), target)
    assert loaded is not None
    assert loaded.step == 3
    for name, tensor in model.state_dict().items():
        assert torch.equal(target["model"][name], tensor), name
    random_state.restore(loaded.extra["random"][rank], CPU)
    assert torch.equal(torch.rand(4), expected)


@as_rank
def choose_alike(folder: Path, rank: int) -> None:
    """Every rank has its own copies; what is bad anywhere is taken nowhere."""
    group = process_group.cpu_group()
    checkpointer = Checkpointer(folder / f"host{rank}", TOKEN, group, lambda _: None)
    target = {"model": {"weight": torch.zeros(4)}}
    outcome: dict[str, Any]
    try:
        given = json.loads((folder / "names.json").read_text())
        mine, better = given[rank], "step-00000009-a1-g1"
        lacking = {better: "its copy is damaged"} if better in given[0] and rank == 1 else {}
        loaded = checkpointer.load(mine, target, lacking=lacking)
        assert loaded is not None
        outcome = {"name": loaded.name, "notes": [str(note) for note in loaded.notes]}
    except NoGoodCheckpointError as error:
        outcome = {"name": None, "notes": [str(note) for note in error.notes]}
    (folder / f"outcome{rank}.json").write_text(json.dumps(outcome))


@as_rank
def share_the_hashing(folder: Path, rank: int) -> None:
    """Note which files this rank hashes, and what comes of loading."""
    hashed: list[str] = []

    def noting(where: Path, files: list[FileRecord]) -> list[Problem]:
        hashed.extend(file.path for file in files)
        return verify_files(where, files)

    checkpointer = Checkpointer(folder, TOKEN, process_group.cpu_group(), lambda _: None)
    try:
        with mock.patch.object(loader, "verify_files", noting):
            checkpointer.load(names(folder), {"model": {"weight": torch.zeros(4)}})
        message = None
    except NoGoodCheckpointError as error:
        message = str(error)
    (folder / f"hashed{rank}.json").write_text(json.dumps([hashed, message]))


@as_rank
def mismatch_on_one(folder: Path, rank: int) -> None:
    """A model that differs on one rank stops all of them with the same words."""
    checkpointer = Checkpointer(folder, TOKEN, process_group.cpu_group(), lambda _: None)
    target = {"model": {"weight": torch.zeros(4 + rank)}}
    try:
        checkpointer.load(names(folder), target)
    except StateMismatchError as error:
        assert "(rank 1): model/weight has the shape [4] in the checkpoint, but [5]" in str(error)  # noqa: PT017
    else:
        raise AssertionError("the mismatch was not seen")


def sharded_state(folder: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """A model under FSDP2 and, for comparison, its whole tensors."""
    model = build()
    whole = {name: t.clone() for name, t in model.state_dict().items()}
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model, mesh=mesh)
    return {"model": model.state_dict()}, whole


@as_rank
def save_sharded(folder: Path, rank: int) -> None:
    """Shards and values of its own from every rank, in two saves without a pause between."""
    group = process_group.cpu_group()
    committed: list[Committed] = []
    checkpointer = Checkpointer(folder, TOKEN, group, committed.append, replicated=False)
    state, _ = sharded_state(folder)
    state["optimizer"] = {"step": 5, "seed": 10 + rank}
    checkpointer.prepare(state)
    for step in (1, 2):
        checkpointer.save(step, {**state, "extra": {"step": step}})
        for _ in range(20):
            dist.all_reduce(torch.zeros(1), group=group)
    checkpointer.wait()
    if rank == 0:
        assert [c.step for c in committed] == [1, 2]
        written = {f.path for f in committed[0].files}
        assert {f"tensors-{r:05d}-00000.safetensors" for r in range(2)} < written


@as_rank
def load_sharded(folder: Path, rank: int) -> None:
    """The same weights on any number of ranks."""
    group = process_group.cpu_group()
    checkpointer = Checkpointer(folder, TOKEN, group, lambda _: None, replicated=False)
    state, whole = sharded_state(folder)
    for tensor in state["model"].values():
        tensor.zero_()
    state["optimizer"] = {"step": 0, "seed": 0}
    loaded = checkpointer.load(["step-00000002-a1-g1"], state)
    assert loaded is not None
    assert loaded.extra == {"step": 2}
    assert state["optimizer"] == {"step": 5, "seed": 10 + (rank if rank < 2 else 0)}
    for name, tensor in state["model"].items():
        assert isinstance(tensor, DTensor)
        assert torch.equal(tensor.full_tensor(), whole[name]), name


@as_rank
def fail_on_one(folder: Path, rank: int) -> None:
    """One rank's disk is full: no rank commits, all of them hear of it, training goes on."""
    group = process_group.cpu_group()
    folder = folder / "checkpoints"
    committed: list[Committed] = []
    errors: list[Exception] = []
    checkpointer = Checkpointer(
        folder, TOKEN, group, committed.append, on_error=errors.append, replicated=False
    )
    state, _ = sharded_state(folder)
    write = Draft.write
    if rank == 1:

        def fail(*args: Any, **options: Any) -> Any:
            raise OSError(errno.ENOSPC, "No space left on device")

        Draft.write = fail  # type: ignore[method-assign]
    checkpointer.save(1, state)
    checkpointer.wait()
    Draft.write = write  # type: ignore[method-assign]
    assert "No space left" in str(errors[0])
    assert ("rank 1" in str(errors[0])) == (rank != 1)
    dist.barrier(group)
    assert list(folder.iterdir()) == []
    dist.barrier(group)
    checkpointer.save(2, state)
    checkpointer.wait()
    dist.barrier(group)
    assert names(folder) == ["step-00000002-a1-g1"]
