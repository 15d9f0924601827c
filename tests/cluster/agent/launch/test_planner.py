"""A planner that nobody waits for ends with its copies; a prediction that fails stops no job."""

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
from support.cluster.agent_process import launch_of, until

from trainhall.cluster.agent.attempt import Attempt
from trainhall.cluster.agent.data_dir import DataDir
from trainhall.cluster.agent.job_settings import JobSettings
from trainhall.cluster.agent.launch import launcher, planner
from trainhall.cluster.agent.reconcile import Stage
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.spec.parse import validate_spec
from trainhall.training.spec.plan import PlanDevice, PlanRequest, planner_input

SLEEPY = """
import time, torch
from torch import nn
from trainhall.task import Task, TensorData

class Sleepy(Task):
    def __init__(self, params, job):
        self.train_data = TensorData(torch.zeros(40, 4), torch.zeros(40, 1))
    def build_model(self):
        return nn.Linear(4, 1)
    def loss(self, model, batch):
        time.sleep(600)
"""


@pytest.mark.processes
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="on one core it makes no copies")
async def test_planner_that_is_cancelled_leaves_no_copy(tmp_path: Path) -> None:
    (tmp_path / "sleepy.py").write_text(SLEEPY)
    spec = validate_spec(
        {
            "name": "sleepy", "task": {"name": "sleepy:Sleepy"}, "code": str(tmp_path),
            "parallelism": {"strategy": "auto"}, "resources": {"workers": 2},
            "training": {"global_batch_size": 8},
        }
    )  # fmt: skip
    device = PlanDevice(kind="cpu", name="a CPU", memory=None)
    request = planner_input(spec, 2, code=str(tmp_path), device=device)
    planning = asyncio.create_task(planner._run(request, os.environ))

    def copies() -> list[psutil.Process]:
        mine = psutil.Process().children(recursive=True)
        found = [p for p in mine if any("planning" in part for part in command(p))]
        return found if len(found) > 2 else []

    found = await until("copies of the planner", copies)
    planning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await planning
    await until("their end", lambda: not any(map(psutil.Process.is_running, found)))


def command(process: psutil.Process) -> list[str]:
    """Return its command line, which is empty if it has ended meanwhile."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:  # of a zombie, too
        return []


async def no_process(*_: object) -> tuple[int, bytes, bytes]:
    raise OSError(errno.EAGAIN, "no more processes")


async def nonsense(*_: object) -> tuple[int, bytes, bytes]:
    return 0, b'{"chosen": {"step_seconds": Infinity}}', b""


async def no_answer(*_: object) -> tuple[int, bytes, bytes]:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize(
    ("answer", "why"),
    [(no_process, "no more processes"), (nonsense, "validation error"), (no_answer, "than 0 s")],
)
async def test_prediction_that_fails_lets_the_attempt_start(
    answer: Callable[..., Awaitable[tuple[int, bytes, bytes]]],
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planner, "_run", answer)
    if answer is no_answer:
        monkeypatch.setattr(launcher, "PREDICTION_SECONDS", 0)
    launch = launch_of({"task": {"name": "digits"}})
    launch.planning = PlanRequest(
        workers=1, device=PlanDevice(kind="cpu", name="a CPU"), own_strategy=True
    )
    attempt = Attempt(launch.token, AttemptFolder(tmp_path / "attempt"), launch, Stage.PLANNING)
    await launcher.Launcher(
        DataDir(tmp_path), cast(Any, None), cast(Any, None), JobSettings({}), lambda: None
    ).plan(attempt)
    assert attempt.plan is None
    assert attempt.plan_refusal is not None
    assert why in attempt.plan_refusal
