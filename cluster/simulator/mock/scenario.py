"""Schedule of events: submissions, pauses, cancellations, failures of hosts.

An opening of three quarters of an hour runs in advance, so that the first page has something of
everything; after it events happen at random, at a modest rate. Only jobs of its own are
touched: what a user submits runs in peace, but for what happens to the hosts.
"""

import contextlib
import heapq
import itertools
from collections.abc import Awaitable, Callable, Collection
from functools import partial

from trainhall.cluster.errors import ClusterError, NotFoundError
from trainhall.cluster.lifecycle.states import FINAL_STATES, NodeState
from trainhall.cluster.simulator import chance
from trainhall.cluster.simulator.host import Host
from trainhall.cluster.simulator.mock import jobs
from trainhall.cluster.simulator.mock.cluster import SimulatedCluster
from trainhall.cluster.simulator.mock.jobs import Order
from trainhall.cluster.simulator.ranks import Fate

OPENING_SECONDS = 2700.0
"""Seconds before the present at which the opening begins."""
ARRIVAL_SECONDS = 80.0
COMMAND_SECONDS = 240.0
TROUBLE_SECONDS = 900.0
"""Mean times between jobs that are submitted, commands of users, and hosts with a trouble."""
IDLE_SECONDS = 20.0
"""Longest time without a job that runs."""
JOIN_SECONDS = 8.0
"""Between two polls for hosts that were registered."""
MOST_WAITING = 4
"""No more jobs are submitted while so many of its own wait."""
RESERVED = 6
"""Devices that jobs which arrive leave free, for those of the page's users."""
LARGE = 16
"""Workers of a job that is submitted all the same, and waits."""
HOSTS = ("gpu-01", "gpu-02", "gpu-03", "gpu-04")

Action = Callable[[], Awaitable[object]]


class Scenario:
    """
    Args:
        fates: where it puts the faults of the jobs that it submits, by job and attempt.
    """

    def __init__(
        self, cluster: SimulatedCluster, fates: dict[str, dict[int, Fate]], seed: int
    ) -> None:
        self._cluster = cluster
        self._fates = fates
        self._chance = chance.stream(seed, "scenario")
        self._plan: list[tuple[float, int, Action]] = []
        self._order = itertools.count()
        self._submitted = itertools.count()
        self._jobs: dict[str, str] = {}
        """Jobs of its own that may not be over, by name."""
        self._at(0.0, self._open)

    @property
    def due(self) -> float:
        """Time of the next event (seconds since the epoch)."""
        return self._plan[0][0]

    async def act(self, now: float) -> None:
        """Let happen what is due."""
        while self._plan[0][0] <= now:
            _, _, action = heapq.heappop(self._plan)
            # A user of the page may have been quicker, so that a command is refused.
            with contextlib.suppress(ClusterError):
                await action()

    def _at(self, time: float, action: Action) -> None:
        heapq.heappush(self._plan, (time, next(self._order), action))

    def _before(self, seconds: float, action: Action) -> None:
        """Schedule an action so long before the present."""
        self._at(self._present - seconds, action)

    # -- the opening -----------------------------------------------------------------------------

    async def _open(self) -> None:
        self._present = self._now() + OPENING_SECONDS
        for name in HOSTS:
            self._cluster.add_host(name)
        for seconds, order in opening_jobs():
            self._before(seconds, partial(self._submit, order))
        create = self._cluster.coordinator.experiments.create
        self._before(1900, partial(create, jobs.sweep("digits sweep", 2)))
        self._before(2150, partial(self._ask, "cancel", "retrieval tower lr=3e-3"))
        self._before(1250, partial(self._switch_off, "gpu-03", 140))
        self._before(820, partial(self._cut_off, "gpu-02", 35))
        self._before(300, partial(self._ask, "pause", "sweep lr=1e-4"))
        self._at(self._present + 5, self._join_registered)
        self._at(self._present + 25, self._arrive)
        self._at(self._present + 25 + IDLE_SECONDS, self._end_idleness)
        self._at(self._present + 150, self._command)
        self._at(self._present + 420, self._trouble)

    # -- what happens at random ------------------------------------------------------------------

    async def _arrive(self) -> None:
        self._at(self._soon(ARRIVAL_SECONDS), self._arrive)
        await self._submit_next()

    async def _end_idleness(self) -> None:
        self._at(self._now() + IDLE_SECONDS, self._end_idleness)
        if (await self._cluster.coordinator.nodes.summary()).devices_busy == 0:
            await self._submit_next()

    async def _submit_next(self) -> None:
        coordinator = self._cluster.coordinator
        queue, mine = await coordinator.queue.list(limit=200), self._jobs.values()
        # Others may wait for devices that the cluster does not have.
        if sum(entry.job_id in mine for entry in queue.items) >= MOST_WAITING:
            return
        order = jobs.arriving(self._chance, next(self._submitted))
        workers, now = order.spec.resources.workers, await coordinator.nodes.summary()
        if workers >= LARGE or now.devices - now.devices_busy - workers >= RESERVED:
            await self._submit(order)

    async def _join_registered(self) -> None:
        """Join hosts that a user of the page registered, as if they ran the command there."""
        self._at(self._now() + JOIN_SECONDS, self._join_registered)
        page = await self._cluster.coordinator.nodes.list(limit=200)
        for node in page.items:
            if node.state == NodeState.PENDING:
                self._cluster.add_host(node.name)

    async def _command(self) -> None:
        self._at(self._soon(COMMAND_SECONDS), self._command)
        service = self._cluster.coordinator.jobs
        await self._forget_finished()
        page = await service.list(limit=50, states=["running"])
        mine = [job for job in page.items if job.id in self._jobs.values()]
        if not mine:
            return
        job = self._chance.choice(mine)
        if self._chance.random() < 0.25:
            await service.cancel(job.id)
        else:
            await service.pause(job.id)
            self._at(self._now() + self._chance.uniform(45, 150), lambda: service.resume(job.id))

    async def _trouble(self) -> None:
        self._at(self._soon(TROUBLE_SECONDS), self._trouble)
        hosts = [host for host in self._cluster.hosts if host.is_connected]
        if len(hosts) < len(HOSTS):
            return  # one trouble at a time
        host, kind = self._chance.choice(hosts), self._chance.random()
        if kind < 0.4:
            await self._cut_off(host.name, self._chance.uniform(25, 70))
        elif kind < 0.75:
            await self._switch_off(host.name, self._chance.uniform(110, 240))
        else:
            await self._drain(host)

    async def _drain(self, host: Host) -> None:
        """Drain a host, and bring it back when it is mended."""
        await self._cluster.coordinator.nodes.remove(host.node_id)
        self._at(self._now() + self._chance.uniform(120, 300), partial(self._welcome, host.name))

    async def _welcome(self, name: str) -> None:
        if all(host.name != name for host in self._cluster.hosts):
            self._cluster.add_host(name)

    # -- the actions -----------------------------------------------------------------------------

    async def _submit(self, order: Order) -> None:
        view, _ = await self._cluster.coordinator.jobs.submit(order.spec)
        self._fates[view.id] = order.fates
        self._jobs[order.spec.name] = view.id

    async def _ask(self, command: str, name: str) -> None:
        await getattr(self._cluster.coordinator.jobs, command)(self._jobs[name])

    async def _cut_off(self, name: str, seconds: float) -> None:
        host = self._host(name)
        if host is not None:
            host.link.part("loses")
            self._at(self._now() + seconds, partial(self._cluster.reconnect, host))

    async def _switch_off(self, name: str, seconds: float) -> None:
        host = self._host(name)
        if host is not None:
            await host.power_off(lost_folders=0.0)
            self._at(self._now() + seconds, partial(self._cluster.reconnect, host))

    def _host(self, name: str) -> Host | None:
        hosts = (host for host in self._cluster.hosts if host.name == name)
        return next((host for host in hosts if host.is_connected), None)

    def forget(self, job_ids: Collection[str]) -> None:
        """Forget jobs that are gone."""
        for job_id in job_ids:
            self._fates.pop(job_id, None)
        self._jobs = {name: job for name, job in self._jobs.items() if job not in job_ids}

    async def _forget_finished(self) -> None:
        for name, job_id in list(self._jobs.items()):
            try:
                job = await self._cluster.coordinator.jobs.get(job_id)
            except NotFoundError:  # a user deleted it
                self.forget([job_id])
                continue
            if job.state in FINAL_STATES:
                self._jobs.pop(name, None)  # or `forget` did meanwhile

    def _now(self) -> float:
        return self._cluster.clock.now().timestamp()

    def _soon(self, mean: float) -> float:
        """Draw a time around the mean, neither zero nor endless."""
        return self._now() + min(max(self._chance.expovariate(1 / mean), mean / 5), 3 * mean)


def opening_jobs() -> list[tuple[float, Order]]:
    """Return jobs with their age in seconds at the start, and what happens to them."""
    out_of_memory = {attempt: Fate("out of memory", 1, 5) for attempt in range(1, 10)}
    return [
        (2690, Order(jobs.digits("digits baseline", 2, steps=900, rate=3e-3))),
        (2675, Order(jobs.model("retrieval tower lr=3e-3", 4, steps=400, seconds=1.5, rate=3e-3,
                                regroups=False),
                     {1: Fate("diverges", 210)})),
        (2640, Order(jobs.model("speech encoder", 8, steps=880, seconds=1.9, every=100,
                                regroups=False),
                     {1: Fate("killed", 330, 3)})),
        (2560, Order(jobs.model("context 32k", 8, steps=2000, seconds=3.0, restarts=1,
                                regroups=False),
                     out_of_memory)),
        (2300, Order(jobs.script("evaluate.py", 1, "/srv/jobs/evaluate.py", "--split", "test"))),
        (2040, Order(jobs.model("vision transformer", 4, steps=2100, seconds=1.2, shared=False,
                                every=200))),
        (1950, Order(jobs.model("ranker nightly", 16, steps=900, seconds=2.2, every=100))),
        (1500, Order(jobs.script("tune.py", 2, "/srv/jobs/tune.py", "--trials", "12"),
                     {1: Fate("error", 17, 1)})),
        (640, Order(jobs.model("ocr decoder", 2, steps=500, seconds=1.5,
                                strategy="auto"))),
        (590, Order(jobs.model("sweep lr=1e-4", 2, steps=600, seconds=1.4, rate=1e-4,
                               shared=False))),
        (560, Order(jobs.model("sweep lr=3e-4", 2, steps=520, seconds=1.4, rate=3e-4,
                               shared=False))),
        (320, Order(jobs.model("sweep lr=1e-3", 2, steps=600, seconds=1.4, rate=1e-3,
                               shared=False), {1: Fate("killed", 195, 0)})),
        (230, Order(jobs.model("text encoder", 16, steps=110, seconds=2.2, priority=-8))),
        (160, Order(jobs.model("ranker no dropout", 2, steps=60, seconds=1.5,
                                strategy="auto"))),
        (90, Order(jobs.model("pretraining 64 GPUs", 64, steps=20_000, seconds=4.0))),
    ]  # fmt: skip
