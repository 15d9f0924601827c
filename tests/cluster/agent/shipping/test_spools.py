"""Spools on their way to a coordinator that forgets, repeats, refuses and goes away."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import share_of

from trainhall.cluster.agent.coordinator_link.http_api import RefusedError, Source, UnavailableError
from trainhall.cluster.agent.shipping.spools import (
    EventShipper,
    FileShipper,
    LogShipper,
    MetricShipper,
)
from trainhall.monitoring.lines import LOG_FULL
from trainhall.training.link import frames as metric_frames

SOURCE = Source("job", 1, 0, "0-12345678", generation=1)


class Sink:
    """What a coordinator committed, with faults on demand, one per request."""

    def __init__(self, faults: list[str] | None = None) -> None:
        self.faults = faults or []
        self.log = bytearray()
        self.frames: list[bytes] = []
        self.events: list[dict[str, Any]] = []
        self.refuse: RefusedError | None = None
        self.sends_offset = True

    def _before(self) -> str:
        if self.refuse is not None:
            raise self.refuse
        fault = self.faults.pop() if self.faults else "none"
        if fault == "lost request":
            raise UnavailableError("lost")
        return fault

    def _after(self, fault: str) -> None:
        if fault == "lost answer":
            raise UnavailableError("lost")

    async def send_logs(self, source: Source, stream: str, offset: int, data: bytes) -> int:
        fault = self._before()
        if fault == "restored":
            # A database from before the last commit.
            del self.log[len(self.log) // 2 :]
        if offset > len(self.log):
            offset_sent = len(self.log) if self.sends_offset else None
            raise RefusedError(409, f"offset {len(self.log)} is expected", offset_sent)
        self.log += data[len(self.log) - offset :]
        self._after(fault)
        return len(self.log)

    async def send_metrics(self, source: Source, frames: bytes) -> int:
        fault = self._before()
        if fault == "restored":
            del self.frames[len(self.frames) // 2 :]
        start = 0
        first = next(iter(metric_frames.complete_frames(frames))).sequence
        if first > len(self.frames) + 1:
            raise RefusedError(409, "a frame was left out", len(self.frames) + 1)
        for frame in metric_frames.complete_frames(frames):
            if frame.sequence == len(self.frames) + 1:
                self.frames.append(frames[start : frame.end])
            start = frame.end
        self._after(fault)
        return len(self.frames)

    async def send_events(self, source: Source, lines: bytes) -> int:
        fault = self._before()
        if fault == "restored":
            del self.events[len(self.events) // 2 :]
        for line in lines.splitlines():
            event = json.loads(line)
            if event["sequence"] == len(self.events) + 1:
                self.events.append(event)
        self._after(fault)
        return len(self.events)

    async def put_file(
        self, job_id: str, name: str, path: str, file: Path, sha256: str, owner: object = None
    ) -> None:
        raise NotImplementedError

    async def commit(self, job_id: str, name: str) -> None:
        raise NotImplementedError


async def ship_all(spool: FileShipper) -> None:
    """Ship as the agent does, until nothing is left."""
    for _ in range(1000):
        try:
            if not await spool.ship():
                return
        except UnavailableError:
            continue
    raise AssertionError("the spool never comes to an end")


faults = st.lists(st.sampled_from(["none", "lost request", "lost answer", "restored"]), max_size=8)
cuts = st.lists(st.integers(0, 10**6), max_size=6)


async def grow_and_ship(
    path: Path, data: bytes, cuts: list[int], make: Any, reset: list[bool]
) -> None:
    """Let a file grow in pieces, shipping in between, sometimes by a new agent that knows less."""
    spool = make()
    positions = [spool.position()]
    written = 0
    for i, cut in enumerate([*sorted(c % (len(data) + 1) for c in cuts), len(data)]):
        with path.open("ab") as file:
            file.write(data[written:cut])
        assert spool.backlog == cut - spool.offset
        written = cut
        await ship_all(spool)
        if i < len(reset) and reset[i]:
            spool = make()
            spool.restore(positions[-1])
        positions.append(spool.position())
    await ship_all(spool)
    assert not spool.has_more()
    assert spool.backlog == len(data) - spool.offset


@given(
    st.binary(max_size=700_000), cuts, faults, st.lists(st.booleans(), max_size=6), st.booleans()
)
@settings(max_examples=share_of(60))
def test_every_byte_of_a_log_arrives_once(
    tmp_path_factory: pytest.TempPathFactory,
    data: bytes,
    cuts: list[int],
    faults: list[str],
    reset: list[bool],
    sends_offset: bool,
) -> None:
    path = tmp_path_factory.getbasetemp() / "stdout.log"
    path.unlink(missing_ok=True)
    sink = Sink(faults)
    sink.sends_offset = sends_offset
    asyncio.run(
        grow_and_ship(path, data, cuts, lambda: LogShipper(SOURCE, path, sink, "stdout"), reset)
    )
    # What a restored database lost behind the last byte shipped is noticed with the next byte.
    assert data.startswith(bytes(sink.log))
    if "restored" not in faults:
        assert bytes(sink.log) == data


def metric_bytes(count: int) -> bytes:
    frames = []
    for sequence in range(1, count + 1):
        table = metric_frames.MetricTable(None, [sequence], [0.0], {"loss": [float(sequence)]})
        frames.append(metric_frames.encode_frame(sequence, metric_frames.encode_tables([table])))
    return b"".join(frames)


@given(st.integers(0, 60), cuts, faults, st.lists(st.booleans(), max_size=6))
@settings(max_examples=share_of(60))
def test_spool_ships_every_frame_exactly_once(
    tmp_path_factory: pytest.TempPathFactory,
    count: int,
    cuts: list[int],
    faults: list[str],
    reset: list[bool],
) -> None:
    path = tmp_path_factory.getbasetemp() / "metrics.bin"
    path.unlink(missing_ok=True)
    data = metric_bytes(count)
    sink = Sink(faults)
    asyncio.run(grow_and_ship(path, data, cuts, lambda: MetricShipper(SOURCE, path, sink), reset))
    assert data.startswith(b"".join(sink.frames))
    if "restored" not in faults:
        assert b"".join(sink.frames) == data


async def test_spool_waits_for_an_incomplete_frame(tmp_path: Path) -> None:
    path, sink, data = tmp_path / "metrics.bin", Sink(), metric_bytes(3)
    spool = MetricShipper(SOURCE, path, sink)
    path.write_bytes(data[:-5])
    await ship_all(spool)
    assert len(sink.frames) == 2
    assert not spool.has_more(), "the same torn frame is not read again and again"
    path.write_bytes(data)
    assert spool.has_more()
    await ship_all(spool)
    assert b"".join(sink.frames) == data


async def test_frame_larger_than_a_batch_is_shipped(tmp_path: Path) -> None:
    path, sink = tmp_path / "metrics.bin", Sink()
    table = metric_frames.MetricTable(0, range(100_000), [0.0] * 100_000, {"loss": [1.0] * 100_000})
    path.write_bytes(metric_frames.encode_frame(1, metric_frames.encode_tables([table])))
    assert path.stat().st_size > 1024 * 1024
    await ship_all(MetricShipper(SOURCE, path, sink))
    assert len(sink.frames) == 1


async def test_damage_ends_the_shipping_of_that_file_only(tmp_path: Path) -> None:
    path, sink = tmp_path / "metrics.bin", Sink()
    path.write_bytes(b"not a frame at all, but many bytes of something else")
    spool = MetricShipper(SOURCE, path, sink)
    await ship_all(spool)
    assert not spool.has_more()
    assert sink.frames == []


async def test_spool_drops_permanently_refused_items(tmp_path: Path) -> None:
    path, sink = tmp_path / "stdout.log", Sink()
    sink.refuse = RefusedError(404, "there is no job 'job'")
    path.write_bytes(b"line\n")
    spool = LogShipper(SOURCE, path, sink, "stdout")
    await ship_all(spool)
    assert not spool.has_more()


def event_lines(*kinds: str) -> bytes:
    lines = []
    for sequence, kind in enumerate(kinds, 1):
        data: dict[str, Any] = {}
        if kind == "checkpoint":
            data = {"name": f"step-{sequence:08d}-a1-g1", "step": sequence}
        event = {"sequence": sequence, "time": 0.0, "rank": 0, "kind": kind, "data": data}
        lines.append(json.dumps(event).encode() + b"\n")
    return b"".join(lines)


async def test_spool_stops_once_no_more_is_stored(tmp_path: Path) -> None:
    class Full(Sink):
        async def send_logs(self, source: Source, stream: str, offset: int, data: bytes) -> int:
            await super().send_logs(source, stream, offset, data)
            return LOG_FULL

    sink, path = Full(), tmp_path / "stdout.log"
    path.write_bytes(b"one\n")
    spool = LogShipper(SOURCE, path, sink, "stdout")
    await ship_all(spool)
    path.write_bytes(b"one\ntwo\n")
    assert not spool.has_more()
    assert spool.backlog == 0
    await ship_all(spool)
    assert sink.log == b"one\n"
    assert spool.position() == [4, 0], "its end counts as shipped"


async def test_spool_reports_a_checkpoint_after_its_upload(tmp_path: Path) -> None:
    path, sink = tmp_path / "events.jsonl", Sink()
    path.write_bytes(event_lines("started", "checkpoint", "note", "checkpoint"))
    seen: list[tuple[str, int]] = []

    async def upload(_job: str, data: dict[str, Any]) -> str | None:
        seen.append((data["name"], len(sink.events)))
        if len(seen) == 1:
            raise UnavailableError("away")
        return None if len(seen) == 2 else "its files are gone"

    await ship_all(EventShipper(SOURCE, path, sink, upload))
    first, second = "step-00000002-a1-g1", "step-00000004-a1-g1"
    assert seen == [(first, 1), (first, 1), (second, 3)]
    assert [e["kind"] for e in sink.events] == ["started", "checkpoint", "note", "not_saved"]
    assert sink.events[3]["data"] == {
        "step": 4, "message": f"checkpoint {second} was not uploaded: its files are gone"
    }  # fmt: skip


async def test_spool_ships_later_events_with_the_checkpoint(tmp_path: Path) -> None:
    path, batches = tmp_path / "events.jsonl", []
    path.write_bytes(event_lines("checkpoint", "note", "paused", "checkpoint"))

    class Counting(Sink):
        async def send_events(self, source: Source, lines: bytes) -> int:
            batches.append(lines.count(b"\n"))
            return await super().send_events(source, lines)

    async def upload(_job: str, _data: dict[str, Any]) -> str | None:
        return None

    await ship_all(EventShipper(SOURCE, path, Counting(), upload))
    assert batches == [3, 1]


@given(cuts, st.lists(st.sampled_from(["none", "lost request", "lost answer"]), max_size=8))
@settings(max_examples=share_of(40))
def test_events_arrive_in_order(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], faults: list[str]
) -> None:
    path = tmp_path_factory.getbasetemp() / "events.jsonl"
    path.unlink(missing_ok=True)
    data = event_lines("started", "note", "note", "paused")
    sink = Sink(faults)
    asyncio.run(grow_and_ship(path, data, cuts, lambda: EventShipper(SOURCE, path, sink), []))
    assert [e["kind"] for e in sink.events] == ["started", "note", "note", "paused"]
