"""Saves in processes of their own, which strace kills or whose system calls it lets fail."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import torch
from support.waiting import eventually
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from trainhall.distributed import process_group
from trainhall.distributed.environment import RankEnvironment
from trainhall.training.checkpoint.checkpointer import Checkpointer
from trainhall.training.checkpoint.format.removal import retire
from trainhall.training.fencing import FencingToken
from trainhall.training.spec.recovery import CheckpointSpec

NOT_TRACED = 99
"""Exit code where strace is not allowed to trace."""


def run(folder: Path) -> int:
    """Save steps 2 and 3 as attempt 2, the first under strace; the errno of the first failure."""
    order = json.loads((folder / "order.json").read_text())
    strace = _attached(order["strace"])
    if strace is None:
        return NOT_TRACED
    errors: list[Exception] = []
    checkpoints, rule = folder / "checkpoints", CheckpointSpec(keep_latest=order["keep"])
    checkpointer = Checkpointer(
        checkpoints,
        FencingToken("job", 2, 1),
        None,
        lambda committed: retire(checkpoints, rule),
        on_error=errors.append,
    )
    checkpointer.save(2, state(2))
    checkpointer.wait()
    strace.terminate()
    strace.wait()
    if order["continues"]:
        checkpointer.save(3, state(3))
        checkpointer.wait()
    return (getattr(errors[0], "errno", None) or 1) if errors else 0


def run_sharded(folder: Path) -> int:
    """As `run`, of step 2 alone and with the model divided among the ranks, one of them traced."""
    order = json.loads((folder / "order.json").read_text())
    environment, device = RankEnvironment.read(os.environ), torch.device("cpu")
    with process_group.joined(environment, device=device, namespace="sharded"):
        checkpoints, rule = folder / "checkpoints", CheckpointSpec(keep_latest=1)
        errors: list[Exception] = []
        checkpointer = Checkpointer(
            checkpoints,
            FencingToken("job", 2, 1),
            process_group.cpu_group(),
            lambda committed: retire(checkpoints, rule),
            on_error=errors.append,
            replicated=False,
        )
        mesh = init_device_mesh("cpu", (environment.world_size,))
        whole = state(2)
        model = {n: distribute_tensor(t, mesh, [Shard(0)]) for n, t in whole["model"].items()}
        strace = None
        if environment.rank == order["rank"]:
            strace = _attached(order["strace"])
            if strace is None:
                os._exit(NOT_TRACED)
        checkpointer.save(2, {**whole, "model": model})
        checkpointer.wait()
        if strace is not None:
            strace.terminate()
            strace.wait()
        # Without the goodbye of those who end together: the other rank may be dead.
        os._exit(1 if errors else 0)


def state(step: int) -> dict[str, Any]:
    """A state that tells of its step in every part."""
    model = {"weight": torch.full((300,), float(step)), "bias": torch.full((3,), float(step))}
    return {"model": model, "optimizer": {"step": step}, "extra": {"step": step}}


def _attached(options: list[str]) -> "subprocess.Popen[bytes] | None":
    """Have strace follow this process and the threads that it starts from here on."""
    strace = subprocess.Popen(
        ["strace", "-f", "-qq", *options, "-p", str(os.getpid())],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def is_decided() -> bool:
        status = Path("/proc/self/status").read_text()
        return strace.poll() is not None or "TracerPid:\t0\n" not in status

    eventually("strace", is_decided, every=0.002)
    return strace if strace.poll() is None else None
