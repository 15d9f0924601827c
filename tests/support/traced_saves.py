"""Saves in a process of their own, which strace kills or whose system calls it lets fail."""

import json
import os
import subprocess
from pathlib import Path

import torch
from support.waiting import eventually

from trainhall.training.checkpoint.checkpointer import Checkpointer
from trainhall.training.checkpoint.removal import retire
from trainhall.training.spec.job import CheckpointSpec

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
        ("job", 2, 1),
        None,
        lambda committed: retire(checkpoints, rule),
        on_error=errors.append,
    )
    checkpointer.save(2, state(2))
    checkpointer.wait()
    strace.terminate()
    strace.wait()
    if order["go_on"]:
        checkpointer.save(3, state(3))
        checkpointer.wait()
    return (getattr(errors[0], "errno", None) or 1) if errors else 0


def state(step: int) -> dict[str, object]:
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
