"""The process groups that end with a script's rank."""

import functools
import runpy
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainhall.training.sdk import together

PLAIN = Path(__file__).parents[3] / "examples" / "scripts" / "plain.py"


def test_process_groups_are_found_without_torchs_list(monkeypatch: pytest.MonkeyPatch) -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        other = dist.new_group()
        assert together._groups() == {dist.group.WORLD, other}
        monkeypatch.delattr(type(dist.distributed_c10d._world), "pg_map")
        assert together._groups() == {dist.group.WORLD}
        monkeypatch.undo()
    finally:
        dist.destroy_process_group()


AT_WORK = """
import atexit, sys, time
import torch
import torch.distributed as dist

def collect():
    # Its thread gives back the tensors, which nobody else has any more: it waits for Python.
    sys.setswitchinterval(60)
    for _ in range(8):
        dist.all_gather([torch.empty(1)], torch.ones(1), async_op=True)
    until = time.monotonic() + 0.05
    while time.monotonic() < until:
        pass

atexit.register(collect)  # before the SDK does: it runs behind all of the SDK's
import trainhall as th
th.init()
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
sys.exit(7)
"""


@pytest.mark.processes
def test_process_ends_with_busy_group_threads() -> None:
    """It was ended by SIGABRT; and a script of its own end leaves its groups as they are."""
    ended = subprocess.run(
        [sys.executable, "-c", AT_WORK], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (7, "")


def test_plain_example_frees_its_model_before_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks of it hung: the model freed the group last, in C++, which then waits for a thread of
    Gloo's with the interpreter's lock held, and that thread may wait for the lock."""
    models: list[weakref.ref[nn.Module]] = []
    left: list[nn.Module] = []
    destroy: Callable[[], None] = dist.destroy_process_group

    class Noted(DistributedDataParallel):
        def __init__(self, module: nn.Module) -> None:
            super().__init__(module)
            models.append(weakref.ref(self))

    def note_and_destroy() -> None:
        left.extend(model for known in models if (model := known()) is not None)
        destroy()

    join: Callable[..., None] = dist.init_process_group
    join_alone = functools.partial(join, store=dist.HashStore(), rank=0, world_size=1)
    monkeypatch.setattr(dist, "init_process_group", join_alone)
    monkeypatch.setattr(dist, "destroy_process_group", note_and_destroy)
    monkeypatch.setattr("torch.nn.parallel.DistributedDataParallel", Noted)
    monkeypatch.setattr(sys, "argv", [str(PLAIN), "--steps", "2"])
    runpy.run_path(str(PLAIN), run_name="__main__")
    assert len(models) == 1
    assert left == []
