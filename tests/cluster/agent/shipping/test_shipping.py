"""How often a host sends what its ranks write."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from support.cluster.agent_process import launch_of
from support.storage.event_files import append_scalars

from trainhall.cluster.agent.coordinator_link.http_api import Source, UnavailableError, failure_of
from trainhall.cluster.agent.event_files import tail
from trainhall.cluster.agent.shipping import event_files, shipping
from trainhall.cluster.agent.shipping.shipping import AttemptShipper, LinkPause
from trainhall.cluster.simulator.loop import VirtualLoop
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.frames import MetricTable
from trainhall.training.link.launch import Launch
from trainhall.training.link.spool import EventSpool, MetricSpool

TASK = {
    "task": {"name": "synthetic"},
    "resources": {"workers": 3},
    "training": {"steps": 1, "global_batch_size": 3},
}


class Coordinator:
    """Takes metrics, and counts whose."""

    def __init__(self) -> None:
        self.requests: Counter[int] = Counter()
        self.log_bytes = 0

    async def send_metrics(self, source: Source, frames: bytes) -> int:
        self.requests[source.rank] += 1
        return 1_000_000

    async def send_logs(self, source: Source, stream: str, offset: int, data: bytes) -> int:
        self.log_bytes += len(data)
        return offset + len(data)


class Host:
    """An attempt of three ranks that write metrics."""

    def __init__(self, path: Path) -> None:
        self.launch: Launch = launch_of(TASK)
        self.folder = AttemptFolder(path)
        self.coordinator = Coordinator()
        self.spools = []
        for place in self.launch.ranks:
            self.folder.rank(place.rank).mkdir(parents=True)
            self.spools.append(MetricSpool(self.folder.metrics(place.rank)))
        self.shipper = AttemptShipper(self.folder, self.launch, self.coordinator)  # type: ignore[arg-type]
        self.done = 0

    def write(self) -> None:
        for spool in self.spools:
            spool.append([MetricTable(0, range(1, 2), [1.0], {"step_seconds": [0.1]})])

    async def look(self) -> None:
        """Send what is due; a thread may look for files meanwhile, and tests stop the clock."""
        deadline = time.perf_counter() + 30
        while self.shipper.start_growing(LinkPause(), self._count_done):
            assert time.perf_counter() < deadline, "it never comes to an end"
            await asyncio.sleep(0)

    def _count_done(self) -> None:
        self.done += 1


class Clock:
    """It passes where a test lets it."""

    now = 100.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    return clock


async def test_other_ranks_ship_larger_batches(tmp_path: Path, clock: Clock) -> None:
    host = Host(tmp_path)
    for _ in range(8):
        host.write()
        await host.look()
        clock.now += 0.25
    assert host.coordinator.requests == {0: 8, 1: 1, 2: 1}
    clock.now += shipping.OTHERS_SECONDS
    await host.look()
    assert host.coordinator.requests == {0: 8, 1: 2, 2: 2}


async def test_shipper_finds_new_output_at_every_poll(tmp_path: Path, clock: Clock) -> None:
    host = Host(tmp_path)
    await host.look()
    missing = []
    for line in range(8):
        with host.folder.stdout(2).open("ab") as file:
            file.write(b"x")
        host.shipper.start_growing(LinkPause(), lambda: None)
        for _ in range(10):
            await asyncio.sleep(0)
        missing.append(line + 1 - host.coordinator.log_bytes)
        clock.now += shipping.POLL_SECONDS
    soon = round(shipping.IDLE_SECONDS / shipping.POLL_SECONDS) + 1
    assert missing[0] == 1
    assert missing[soon:] == [0] * (8 - soon)


async def test_quick_metrics_of_rank_0_share_a_message(tmp_path: Path, clock: Clock) -> None:
    host = Host(tmp_path)
    await host.look()
    clock.now += shipping.POLL_SECONDS
    host.write()
    await host.look()
    assert host.coordinator.requests[0] == 1, "after a silence the next look finds them"
    host.write()
    await host.look()
    assert host.coordinator.requests[0] == 1
    clock.now += shipping.FIRST_SECONDS
    await host.look()
    assert host.coordinator.requests[0] == 2


async def test_shipper_polls_less_while_rank_0_reports(tmp_path: Path, clock: Clock) -> None:
    host = Host(tmp_path)
    await host.look()
    assert host.shipper.pause == shipping.POLL_SECONDS
    for _ in range(4):
        host.write()
        await host.look()
        assert host.shipper.pause == shipping.FIRST_SECONDS
        clock.now += host.shipper.pause
    clock.now += shipping.QUIET_SECONDS
    await host.look()
    assert host.shipper.pause == shipping.POLL_SECONDS, "what is told in their place is found soon"


async def test_shipper_flushes_at_the_end(tmp_path: Path) -> None:
    host = Host(tmp_path)
    for _ in range(2):
        host.write()
        await host.look()
    assert not host.shipper.shipped
    assert not host.done, "the coordinator is told when all is shipped, and not of every piece"
    host.shipper.ended = True
    await host.look()
    assert host.shipper.shipped
    assert host.done
    assert host.coordinator.requests == {0: 2, 1: 2, 2: 2}


async def test_event_files_are_shipped_before_the_end(tmp_path: Path, clock: Clock) -> None:
    host = Host(tmp_path)
    tail.prepare(host.folder, host.launch)
    host.shipper = AttemptShipper(host.folder, host.launch, host.coordinator)  # type: ignore[arg-type]
    host.shipper.outputs.is_done = True
    path = tmp_path / "outputs" / "events.out.tfevents.1.host"
    append_scalars(path, "loss", [(1, 1.0)])
    await host.look()
    assert not host.coordinator.requests, "whether there are others decides about names"
    clock.now += event_files.POLL_SECONDS
    await host.look()
    assert host.coordinator.requests == {0: 1}
    append_scalars(path, "loss", [(2, 1.0)])
    host.shipper.ended = True
    await host.look()
    assert host.shipper.shipped
    assert host.coordinator.requests == {0: 2}


async def test_attempt_is_not_shipped_before_late_spools_are(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(tmp_path)
    tail.prepare(host.folder, host.launch)
    host.shipper = AttemptShipper(host.folder, host.launch, host.coordinator)  # type: ignore[arg-type]
    host.shipper.outputs.is_done = host.shipper.ended = True
    append_scalars(tmp_path / "outputs" / "events.out.tfevents.1.host", "loss", [(1, 1.0)])
    read, seen = event_files.EventFileFollower.follow, []

    async def follow(follower: event_files.EventFileFollower, ended: Callable[[], bool]) -> None:
        await read(follower, ended)
        seen.append((follower.is_done, host.shipper.shipped))

    monkeypatch.setattr(event_files.EventFileFollower, "follow", follow)
    await host.look()
    assert seen[-1] == (True, False)
    assert host.shipper.shipped
    assert host.coordinator.requests == {0: 1}


@pytest.fixture
def virtual(monkeypatch: pytest.MonkeyPatch) -> Iterator[asyncio.Runner]:
    """Runs coroutines in a time that passes at once."""
    loop = VirtualLoop()
    monkeypatch.setattr(time, "monotonic", loop.time)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        yield runner


class Full(Coordinator):
    """Its disk takes no checkpoint, and its database everything."""

    def __init__(self) -> None:
        super().__init__()
        self.uploads: list[float] = []
        """When each was tried."""
        self.room = False

    async def commit(self, job_id: str, name: str) -> None:
        self.uploads.append(asyncio.get_running_loop().time())
        if not self.room:
            raise failure_of(507, "the disk with the coordinator's data folder is full")

    async def send_events(self, source: Source, lines: bytes) -> int:
        return 1


def refused_upload(path: Path) -> tuple[Host, Full]:
    """A host with a checkpoint for which its coordinator has no room."""
    host, full = Host(path), Full()
    host.coordinator = full
    host.shipper = AttemptShipper(host.folder, host.launch, full)  # type: ignore[arg-type]
    events = EventSpool(host.folder.events(0), rank=0)
    events.append("checkpoint", {"name": "step-00000010-a1-g1"})
    return host, full


def test_refused_upload_backs_off_while_others_succeed(
    tmp_path: Path, virtual: asyncio.Runner
) -> None:
    async def run() -> None:
        loop, (host, full) = asyncio.get_running_loop(), refused_upload(tmp_path)
        backoff = LinkPause()

        async def ship(seconds: float) -> None:
            until = loop.time() + seconds
            while loop.time() < until:
                host.write()
                host.shipper.start_growing(backoff, lambda: None)
                await asyncio.sleep(shipping.POLL_SECONDS)

        await ship(60)
        pauses = [later - at for at, later in pairwise(full.uploads)]
        assert pauses[0] < 1, "most failures do not last"
        assert max(pauses) > shipping.OWN_RETRY_LIMIT_SECONDS / 2
        assert len(full.uploads) < 20
        assert full.requests[0] > 100, "what can be sent is not held up"
        full.room = True
        await ship(shipping.OWN_RETRY_LIMIT_SECONDS + 1)
        assert not host.shipper.spools[0].has_more()
        await host.shipper.close()

    virtual.run(run())


def test_refused_upload_backs_off_without_other_traffic(
    tmp_path: Path, virtual: asyncio.Runner
) -> None:
    async def run() -> None:
        host, full = refused_upload(tmp_path)
        host.shipper.ended = True
        host.shipper.start_growing(LinkPause(), lambda: None)
        await asyncio.sleep(600)
        assert len(full.uploads) < 150, "every 5 to 10 s at last"
        full.room = True
        await asyncio.sleep(shipping.OWN_RETRY_LIMIT_SECONDS + shipping.RETRY_LIMIT_SECONDS)
        assert not host.shipper.spools[0].has_more(), [
            (s.name, s.has_more()) for s in host.shipper.spools
        ]
        await host.shipper.close()

    virtual.run(run())


def test_coordinator_that_is_away_is_found_soon(tmp_path: Path, virtual: asyncio.Runner) -> None:
    """Where nothing gets through, one pause for all is enough."""

    class Away(Coordinator):
        here = False

        async def send_metrics(self, source: Source, frames: bytes) -> int:
            if not self.here:
                raise UnavailableError("away")
            return await super().send_metrics(source, frames)

    async def run() -> None:
        host = Host(tmp_path)
        host.coordinator = away = Away()
        host.shipper = AttemptShipper(host.folder, host.launch, away)  # type: ignore[arg-type]
        host.write()
        host.shipper.ended = True
        host.shipper.start_growing(LinkPause(), lambda: None)
        await asyncio.sleep(600)
        away.here = True
        await asyncio.sleep(shipping.RETRY_LIMIT_SECONDS + 0.1)
        assert host.shipper.shipped

    virtual.run(run())
