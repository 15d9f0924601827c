"""One seed, from its first event to its last."""

import asyncio
import gc
from collections import Counter
from dataclasses import dataclass, field

from trainhall.cluster.simulator import chance
from trainhall.cluster.simulator.checks.invariants import LIVENESS
from trainhall.cluster.simulator.faults import Faults
from trainhall.cluster.simulator.loop import VirtualLoop
from trainhall.cluster.simulator.story import Story
from trainhall.cluster.simulator.world import FAULTY_SECONDS, World

LONGEST_SECONDS = 2000.0
"""Virtual, of a whole run."""
SETTLED_SHARE = 0.6
"""Share of seeds in which nothing fails before the first jobs run: later faults hit their ranks."""
SETTLED_SECONDS = (3.0, 7.0)
CROWDED_SHARE = 0.08
"""Share of seeds in which, after all faults, a large job has to get past small ones."""


@dataclass
class Result:
    seed: int
    problem: str | None
    """The first invariant that did not hold, in words; None when all did."""
    events: int
    virtual_seconds: float
    faults: Counter[str]
    """Number of injections of each kind."""
    checks: Counter[str]
    """Number of checks of each invariant."""
    exercised: Counter[str]
    """Number of events that could have broken an invariant."""
    jobs: int
    attempts: int
    digest: str
    """Hash of the story: two runs of one seed have the same."""
    story: list[str] = field(default_factory=list, repr=False)


def run_seed(seed: int) -> Result:
    """Simulate a cluster under the faults of a seed; the same seed gives the same story."""
    loop = VirtualLoop()
    story = Story(loop.time)
    # Cycles are many and small: collecting them between two seeds is far cheaper.
    collects = gc.isenabled()
    gc.disable()
    try:
        with story.listening(), asyncio.Runner(loop_factory=lambda: loop) as runner:
            return runner.run(_simulate(seed, story))
    finally:
        if collects:
            gc.enable()


async def _simulate(seed: int, story: Story) -> Result:
    loop = asyncio.get_running_loop()
    world = World(seed, story)
    draws = chance.stream(seed, "run")
    is_crowded = draws.random() < CROWDED_SHARE
    is_settled = draws.random() < SETTLED_SHARE
    await world.start_coordinator()
    for _ in range(draws.choice([1, 2] if is_crowded else [1, 2, 2, 3, 3, 4])):
        world.add_host(draws.randint(1, 2 if is_crowded else 3))
    submissions = [
        loop.create_task(world.submit_at(draws.uniform(0.1, 5.0), number))
        for number in range(draws.choice([1, 1, 2]))
    ]
    faults = Faults(world, chance.stream(seed, "faults"))
    try:
        async with asyncio.timeout(LONGEST_SECONDS):
            if is_settled:
                await asyncio.sleep(draws.uniform(*SETTLED_SECONDS))
            await faults.inject(draws.uniform(*FAULTY_SECONDS), bad_from_the_start=not is_settled)
            await faults.end()
            await asyncio.gather(*submissions)
            world.inspector.preemption.calm()
            if is_crowded:
                await world.crowd(chance.stream(seed, "crowd"))
            await world.finish()
    except TimeoutError:
        what = "a client waits for an answer without end"
        world.inspector.inspected.violated(LIVENESS, what)
    problem = world.broken
    await world.close()
    return Result(
        seed=seed,
        problem=problem,
        events=story.events,
        virtual_seconds=loop.time(),
        faults=story.faults,
        checks=story.checks,
        exercised=story.exercised,
        jobs=world.count("jobs"),
        attempts=world.count("attempts"),
        digest=story.digest,
        story=story.lines,
    )
