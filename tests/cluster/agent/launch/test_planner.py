"""A planner that nobody waits for any more ends, with its copies."""

import asyncio
import os
from pathlib import Path

import psutil
import pytest
from support.cluster.agent_process import until

from trainhall.cluster.agent.launch import planner
from trainhall.training.spec.parse import validate_spec
from trainhall.training.spec.plan import PlanDevice, planner_input

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
    planning = asyncio.create_task(planner._run(request))

    def copies() -> list[psutil.Process]:
        mine = psutil.Process().children(recursive=True)
        found = [p for p in mine if any("planning" in part for part in p.cmdline())]
        return found if len(found) > 2 else []

    found = await until("copies of the planner", copies)
    planning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await planning
    await until("their end", lambda: not any(map(psutil.Process.is_running, found)))
