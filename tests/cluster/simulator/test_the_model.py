"""What the simulator takes for the world: it breaks no law that the real one keeps."""

import asyncio
import random
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trainhall.cluster.simulator.agent import START_SECONDS
from trainhall.cluster.simulator.clock import WorldClock
from trainhall.cluster.simulator.counting import Counting
from trainhall.cluster.simulator.loop import VirtualLoop
from trainhall.cluster.simulator.ranks import Group, GroupObserver, Rank, Storage
from trainhall.cluster.simulator.shim import OPEN_SECONDS, SEND_OFF_SECONDS, Folder, Shim
from trainhall.cluster.simulator.story import Story
from trainhall.cluster.simulator.world import World
from trainhall.training.fencing import FencingToken
from trainhall.training.link.launch import CheckpointPlan, Launch, RankSlot
from trainhall.training.link.status import EXIT_COMPLETED, Outcome
from trainhall.training.spec.parse import validate_spec

STEPS = 7


def launch() -> Launch:
    spec = validate_spec(
        {
            "name": "job",
            "task": {"name": "synthetic"},
            "resources": {"workers": 3},
            "training": {"steps": STEPS, "global_batch_size": 60},
        }
    )
    return Launch(
        job_id="job", attempt=1, generation=1, spec=spec, world_size=3, node_rank=0, num_nodes=1,
        ranks=[], checkpoint=CheckpointPlan(folder="/shared/job", upload=False),
    )  # fmt: skip


def play(work: Coroutine[Any, Any, None]) -> None:
    loop = VirtualLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(work)


@pytest.mark.parametrize("seed", range(20))
def test_no_step_follows_the_last_one(seed: int) -> None:
    """A rank may fall between the last step and the end."""
    others = [
        SimpleNamespace(step=STEPS, reported_step=STEPS, unsure=[], number=number)
        for number in (1, 2)
    ]
    fallen = cast(Rank, SimpleNamespace(was_first=True, number=0))
    group = Group(
        launch(), Storage(), random.Random(seed), WorldClock(), GroupObserver(), Counting,
        ranks=cast(dict[int, Rank], dict(enumerate([fallen, *others]))), step=STEPS,
    )  # fmt: skip
    group.work = Counting(group)
    group.lost(fallen)
    assert {(rank.step, rank.reported_step) for rank in others} == {(STEPS, STEPS)}


@pytest.mark.parametrize("returns", [False, True])
def test_power_cut_ends_starting_attempts(returns: bool) -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        host = World(1, Story(loop.time)).add_host(1)
        token, folder = FencingToken("job", 1, 1), Folder(launch())
        host.disk.folders[token] = folder
        cuts = host.power_cuts
        await host.power_off()
        host.disk.folders[token] = folder  # whether it is lost or not
        if returns:
            host.power_on()
        host.start_shim(token, folder, cuts)
        assert folder.shim is None
        await asyncio.sleep(START_SECONDS[1])
        assert host.shims() == []
        await host.kill_agent()

    play(work())


def test_model_ends_late_rank_with_completed_job() -> None:
    """A host was told of a later generation, and its ranks met others that were not."""

    async def work() -> None:
        loop = asyncio.get_running_loop()
        host = World(1, Story(loop.time)).add_host(2)
        slots = [
            RankSlot(rank=i, local_rank=i, device_kind="cuda", device_index=i) for i in range(2)
        ]
        first = launch().model_copy(update={"in_place": True, "ranks": slots[:1]})
        folder = Folder(first)
        shim = folder.shim = Shim(folder, host)
        shim.start()
        await asyncio.sleep(OPEN_SECONDS[1])
        folder.launch = first.model_copy(update={"generation": 2, "ranks": slots})
        shim.take_launch()
        completes, comes_late = shim.running
        completes.end(EXIT_COMPLETED)
        await asyncio.sleep(SEND_OFF_SECONDS)
        assert not comes_late.alive
        assert shim.status is not None
        assert shim.status.outcome is Outcome.COMPLETED
        await host.kill_agent()

    play(work())
