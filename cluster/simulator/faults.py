"""Faults and their times: drawn from the seed, one kind after another, often several at once."""

import asyncio
import random

from trainhall.cluster.simulator.host import Host
from trainhall.cluster.simulator.loop import Process
from trainhall.cluster.simulator.network import Link, Parting, Way
from trainhall.cluster.simulator.world import World

GAP_SECONDS = (0.2, 2.5)
"""Between the beginnings of two faults."""

WEIGHTS: dict[str, float] = {
    "kill_coordinator": 3,
    "suspend_coordinator": 1,
    "stop_coordinator": 1,
    "part": 3,
    "isolate": 3,
    "worsen": 2,
    "kill_agent": 2,
    "stop_agent": 1,
    "power_off": 1.5,
    "fail_at_launch": 3,
    "kill_shim": 1,
    "kill_rank": 5,
    "slow_disk": 1.5,
    "failing_disk": 0.7,
    "jump_clock": 1,
    "command": 3,
    "resize": 1.5,
    "remove": 0.5,
    "drain": 1,
}
"""Frequency of each kind: a method of `Faults`."""

LAUNCH_POLLS, LAUNCH_POLL_SECONDS = 20, 0.2
"""Number and interval of polls for a launch, for a host that is about to fail."""

BAD_FROM_THE_START = 0.5
"""The share of hosts whose network is bad when the first jobs come."""


class Faults:
    """Injects faults until it is stopped, then repairs everything."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self._world = world
        self._chance = chance
        self._lasting: list[asyncio.Task[None]] = []

    async def inject(self, seconds: float, *, bad_from_the_start: bool) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        kinds, weights = list(WEIGHTS), list(WEIGHTS.values())
        for host in self._world.hosts:
            if bad_from_the_start and self._chance.random() < BAD_FROM_THE_START:
                self._lasting.append(loop.create_task(self._worsen(host.link)))
        while loop.time() < end and self._world.broken is None:
            await asyncio.sleep(self._chance.uniform(*GAP_SECONDS))
            (kind,) = self._chance.choices(kinds, weights)
            # A fault lasts while others begin.
            self._lasting.append(loop.create_task(getattr(self, f"_{kind}")()))

    async def end(self) -> None:
        """End every fault that lasts; then nothing stays broken."""
        await asyncio.gather(*self._lasting)
        world = self._world
        for link in [world.users, *(host.link for host in world.hosts)]:
            link.calm()
        world.disk.slow_seconds = world.disk.failing = 0.0
        world.story.log("world", "the last fault is over")

    # -- the coordinator -------------------------------------------------------------------------

    async def _kill_coordinator(self) -> None:
        world = self._world
        await self._wait_a_moment()
        if world.server.process is None:
            return
        away = self._some((0.1, 3.0), (4.0, 14.0))
        world.story.fault("coordinator killed", "coordinator", f"is killed, for {away:.1f} s")
        await world.kill_coordinator()
        await asyncio.sleep(away)
        if world.server.process is None:
            await world.start_coordinator()

    async def _suspend_coordinator(self) -> None:
        """Suspend its machine: it wakes up with advanced clocks, having received nothing."""
        await self._wait_a_moment()
        seconds = self._chance.uniform(5.0, 300.0)
        self._world.story.fault(
            "coordinator suspended", "coordinator", f"slept for {seconds:.0f} s"
        )
        self._world.clock.leapt += seconds

    async def _stop_coordinator(self) -> None:
        await self._wait_a_moment()
        await self._stop(self._world.server.process, "coordinator")

    async def _slow_disk(self) -> None:
        disk = self._world.disk
        disk.slow_seconds = self._some((0.02, 0.3), (0.5, 3.0))
        self._world.story.fault("slow disk", "disk", f"takes up to {disk.slow_seconds:.2f} s")
        await asyncio.sleep(self._chance.uniform(1.0, 10.0))
        disk.slow_seconds = 0.0

    async def _failing_disk(self) -> None:
        disk = self._world.disk
        disk.failing = self._chance.choice([0.2, 0.7, 1.0])
        self._world.story.fault("failing disk", "disk", f"refuses {disk.failing:.0%}")
        await asyncio.sleep(self._chance.uniform(0.5, 8.0))
        disk.failing = 0.0

    async def _jump_clock(self) -> None:
        world = self._world
        seconds = self._chance.choice([-3600.0, -60.0, 60.0, 3600.0]) * self._chance.random()
        clocks = [("coordinator", world.clock), *((host.name, host.clock) for host in world.hosts)]
        who, clock = self._chance.choice(clocks)
        self._world.story.fault("clock jump", who, f"the time of day jumps by {seconds:+.0f} s")
        clock.offset += seconds

    # -- the network -----------------------------------------------------------------------------

    async def _part(self) -> None:
        link = self._any_link()
        if link.parted:
            return
        await self._part_link(link, self._some((0.5, 5.0), (7.0, 16.0)))

    async def _isolate(self) -> None:
        """Cut off a host whose ranks run on for longer than the coordinator waits."""
        link = self._any_host().link
        if not link.parted:
            await self._part_link(link, self._chance.uniform(8.0, 20.0))

    async def _part_link(self, link: Link, seconds: float) -> None:
        how: Parting = "loses" if self._chance.random() < 0.5 else "holds"
        open_way: Way | None = self._chance.choice([None, None, "up", "down"])
        ways = f", but not {open_way}" if open_way else ""
        self._world.story.fault(
            f"partition that {how}" + (" one way" if open_way else ""),
            link.name,
            f"is parted for {seconds:.1f} s{ways}; the link {how} what is sent",
        )
        link.part(how, open_way)
        await asyncio.sleep(seconds)
        self._world.story.log(link.name, "is connected again")
        link.heal()

    async def _worsen(self, link: Link | None = None) -> None:
        link = link or self._any_link()
        link.loss = self._chance.choice([0.1, 0.4, 0.7])
        link.doubling = self._chance.choice([0.0, 0.2, 0.5])
        link.delay = (0.001, self._chance.choice([0.05, 1.0, 5.0]))
        self._world.story.fault(
            "bad network",
            link.name,
            f"loses {link.loss:.0%}, doubles {link.doubling:.0%}, delays up to {link.delay[1]} s",
        )
        await asyncio.sleep(self._chance.uniform(1.0, 12.0))
        if not link.parted:
            link.calm()

    # -- hosts -----------------------------------------------------------------------------------

    async def _kill_agent(self) -> None:
        """Kill an agent, or end every second one of a host as SIGTERM does, and start another."""
        host = self._any_host()
        await self._wait_a_moment()
        if host.agent is None:
            return
        away = self._some((0.1, 3.0), (4.0, 14.0))
        if host.agents % 2 == 0:
            self._world.story.fault("agent ended", host.name, f"its agent ends, for {away:.1f} s")
            await host.end_agent()
        else:
            self._world.story.fault(
                "agent killed", host.name, f"its agent is killed, for {away:.1f} s"
            )
            await host.kill_agent()
        await asyncio.sleep(away)
        if host.powered and host.agent is None:
            host.start_agent()

    async def _stop_agent(self) -> None:
        host = self._any_host()
        await self._wait_a_moment()
        if host.agent is not None:
            await self._stop(host.agent.process, host.name)

    async def _power_off(self) -> None:
        host = self._any_host()
        if not host.powered:
            return
        seconds = self._chance.uniform(1.0, 12.0)
        self._world.story.fault("host powered off", host.name, f"is off for {seconds:.1f} s")
        await host.power_off()
        await asyncio.sleep(seconds)
        host.power_on()

    async def _fail_at_launch(self) -> None:
        """Cut off a host, and its power, just after it launched something."""
        world = self._world
        host = self._chance.choice([h for h in world.hosts if not h.shims()] or world.hosts)
        if not host.powered or host.link.parted:
            return
        world.story.fault("host failed at a launch", host.name, "is unreachable from here on")
        host.link.part("loses", open_way="down")
        known = dict(host.disk.launched)
        for _ in range(LAUNCH_POLLS):
            await asyncio.sleep(LAUNCH_POLL_SECONDS)
            runs = any(shim.running for shim in host.shims())
            if runs and known != host.disk.launched:
                seconds = self._chance.uniform(0.3, 2.0)
                world.story.log(host.name, f"! is off for {seconds:.1f} s")
                await host.power_off()
                await asyncio.sleep(seconds)
                host.power_on()
                break
        host.link.heal()

    async def _kill_shim(self) -> None:
        host = self._any_host()
        shims = [shim for shim in host.shims() if shim.alive]
        if shims:
            self._world.story.fault("shim killed", host.name, "a shim is killed")
            self._chance.choice(shims).die(with_ranks=False)

    async def _kill_rank(self) -> None:
        ranks = [rank for shim in self._any_host().shims() for rank in shim.running]
        if ranks:
            rank = self._chance.choice(ranks)
            what = f"rank {rank.number} of job {rank.launch.job_id} is killed"
            self._world.story.fault("rank killed", rank.spool.writer, what)
            rank.end(-9)

    # -- people ----------------------------------------------------------------------------------

    async def _command(self) -> None:
        if self._world.jobs:
            what = self._chance.choice(["pause", "pause", "resume", "resume", "cancel"])
            self._world.story.faults[f"user's {what}"] += 1
            await self._world.command(what, self._chance.choice(self._world.jobs))

    async def _resize(self) -> None:
        if self._world.jobs:
            self._world.story.faults["user's resize"] += 1
            await self._world.command("resize", self._chance.choice(self._world.jobs))

    async def _drain(self) -> None:
        """Drain a node as a user does, and mostly take that back after a while."""
        host, world = self._any_host(), self._world
        if not host.node_id:
            return
        world.story.fault("node drained", host.name, "a user drains it")
        if await world.drain(host, "drain") and self._chance.random() < 0.7:
            await asyncio.sleep(self._chance.uniform(0.5, 8.0))
            world.story.log(host.name, "a user takes the drain back")
            await world.drain(host, "undrain")

    async def _remove(self) -> None:
        host = self._any_host()
        if host.node_id and host.disk.credential:
            self._world.story.fault("node removed", host.name, "a user removes it")
            await self._world.remove(host)

    async def _stop(self, process: Process | None, who: str) -> None:
        """Send SIGSTOP, and SIGCONT later: what comes meanwhile waits in its sockets."""
        if process is None or process.stopped:
            return
        seconds = self._some((0.2, 3.0), (4.0, 12.0))
        self._world.story.fault("process stopped", who, f"is stopped for {seconds:.1f} s")
        process.stop()
        await asyncio.sleep(seconds)
        if process.alive:
            self._world.story.log(who, "continues")
            process.resume()

    # -- drawing ---------------------------------------------------------------------------------

    def _any_host(self) -> Host:
        """Choose a host, rather one on which something runs."""
        hosts = self._world.hosts
        busy = [host for host in hosts if host.shims()]
        return self._chance.choice(busy if busy and self._chance.random() < 0.7 else hosts)

    def _any_link(self) -> Link:
        return self._world.users if self._chance.random() < 0.2 else self._any_host().link

    def _some(self, short: tuple[float, float], long: tuple[float, float]) -> float:
        """Draw a time, mostly short, now and then long."""
        return self._chance.uniform(*(short if self._chance.random() < 0.6 else long))

    async def _wait_a_moment(self) -> None:
        """Wait for a random moment, so that a fault may hit any point of the work in progress."""
        for _ in range(self._chance.randint(0, 30)):
            await asyncio.sleep(0)
