"""Two ranks of a pipeline, of which the second is late on purpose in its last step.

Under GPipe it computes its first micro-batch no sooner than rank 0 has begun with its third, which
goes on no sooner than rank 1 does. So the second micro-batch is on its way from the one rank to the
other while rank 0 computes.
"""

import json
import os
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from support.ranks.waiting import Late
from torch import nn

from trainhall.distributed import process_group
from trainhall.distributed.environment import RankEnvironment
from trainhall.parallelism.choose import StrategyConfig, apply
from trainhall.parallelism.declaration import Declaration
from trainhall.parallelism.degrees import Degrees, Schedule
from trainhall.parallelism.pipelining import transit
from trainhall.parallelism.strategy import Tools
from trainhall.training.common.step_clock import HostClock, Phase

CPU = torch.device("cpu")
PATIENCE = timedelta(seconds=60)
MICROBATCHES = 4
SCHEDULES: tuple[Schedule, ...] = ("gpipe", "1f1b", "zbv")
STEPS = transit.FIRST + transit.EVERY + 1
"""Two of them are looked at."""


def steps(folder: Path) -> int:
    torch.set_num_threads(1)
    environment = RankEnvironment.read(os.environ)
    with process_group.joined(environment, device=CPU, namespace="transit"):
        measured = {schedule: _steps(schedule, environment.rank) for schedule in SCHEDULES}
    (folder / f"{environment.rank}.json").write_text(json.dumps(measured))
    return 0


def _steps(schedule: Schedule, rank: int) -> dict[str, Any]:
    """Of each step what was sent in it, and when the ranks met in the last one."""
    meeting = Late()
    own = 2 * rank  # a layer that this rank computes, whatever the schedule
    layers = [
        nn.Sequential(nn.Linear(8, 8), meeting if i == own else nn.Identity()) for i in range(4)
    ]
    model = nn.Sequential(*layers)
    declaration = Declaration(layers=(("0",), ("1",), ("2",), ("3",)))
    config = StrategyConfig(
        strategy="pipeline", degrees=Degrees(pipeline=2), bucket_mb=25, reshard_after_forward=True,
        sequence_parallel=False, schedule=schedule, microbatches=MICROBATCHES,
    )  # fmt: skip
    strategy = apply(config, model, declaration, CPU)
    store = dist.distributed_c10d._get_default_store()
    clock = HostClock()
    sent: list[tuple[float, float]] = []
    passed = 0
    met: list[float] = []

    def meet() -> None:
        nonlocal passed
        passed += 1
        if rank == 0 and passed == 3:
            store.set("begun", "")
            store.wait(["went on"], PATIENCE)
        elif rank == 1 and passed == 1:
            store.wait(["begun"], PATIENCE)
            met.append(clock.now())
            store.set("went on", "")

    def record(begun: float, ended: float) -> None:
        sent.append((begun, ended))
        clock.sent(begun, ended)

    tools = Tools(
        autocast=nullcontext, scale=lambda loss: loss,
        forward_ended=lambda: clock.mark(Phase.FORWARD),
        backward_ended=lambda: clock.mark(Phase.BACKWARD),
        communication_ended=lambda: clock.mark(Phase.COMMUNICATION),
        now=clock.now, sent=record, sending_unmeasured=clock.sending_unmeasured,
    )  # fmt: skip
    x = torch.randn(MICROBATCHES, 8)
    counts = []
    for step in range(STEPS):
        before = len(sent)
        if schedule == "gpipe" and step == STEPS - 1:
            meeting.stop = meet
        clock.start()
        strategy.gradients([x], lambda m, x: (m(x).square().mean(), ()), tools, rounds=1)
        clock.finish()
        strategy.clear_gradients()
        counts.append(len(sent) - before)
    times = clock.take()
    return {
        "tells": strategy.reports_sending,
        "counts": counts,
        "hidden": [None if hidden != hidden else hidden for hidden in times.hidden.tolist()],
        "computed": times.phases[:, [Phase.FORWARD, Phase.BACKWARD]].sum(axis=1).tolist(),
        "met": met,
        "last": sent[-counts[-1] :],
    }
