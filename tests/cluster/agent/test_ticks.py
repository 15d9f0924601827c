"""Looks that come at ticks come together."""

import asyncio

import pytest

from trainhall.cluster.agent.ticks import until_tick
from trainhall.cluster.simulator.loop import VirtualLoop


def test_ticks_share_one_wake_up() -> None:
    loop = VirtualLoop()
    woken: set[float] = set()

    async def look(begins: float, every: float) -> None:
        await asyncio.sleep(begins)
        for _ in range(int(10 / every)):
            await asyncio.sleep(until_tick(every))
            woken.add(round(loop.time(), 6))

    async def run() -> None:
        await asyncio.gather(look(0.03, 0.25), look(0.11, 0.5), look(0.07, 2.0))

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(run())
    assert len(woken) == 40
    assert all(at % 0.25 == pytest.approx(0) for at in woken)
