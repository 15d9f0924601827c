"""Spools whose pieces share the messages of one websocket that breaks at times."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cluster.agent_process import until
from support.examples import share_of
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.http11 import Response

from trainhall.cluster.agent.coordinator_link import batched_api
from trainhall.cluster.agent.coordinator_link.batched_api import (
    SMALL_BYTES,
    BatchedApi,
    BatchSender,
)
from trainhall.cluster.agent.coordinator_link.http_api import RefusedError, Source, UnavailableError
from trainhall.cluster.agent.options import AgentOptions
from trainhall.cluster.agent.shipping.spools import FileShipper, LogShipper, MetricShipper
from trainhall.cluster.wire.batches import (
    MAX_BATCH_BYTES,
    BatchItem,
    BatchReply,
    decode_batch,
    encode_replies,
)
from trainhall.training.link.frames import MetricTable, complete_frames, encode_frame, encode_tables


class Coordinator:
    """What was committed, of whom; a fault befalls one message each."""

    def __init__(self, faults: list[str] | None = None) -> None:
        self.faults = faults or []
        self.logs: dict[tuple[int, str], bytes] = {}
        self.frames: dict[str, list[bytes]] = {}
        self.messages: list[list[BatchItem]] = []
        self.connections: list[Connection] = []
        self.refused_jobs: set[str] = set()
        self.silent = False

    async def dial(self) -> Any:
        self.connections.append(Connection(self))
        return self.connections[-1]

    def take(self, piece: BatchItem, data: bytes) -> BatchReply:
        if piece.job_id in self.refused_jobs:
            return BatchReply(refusal="there is no such job", status=404)
        if piece.kind == "metrics":
            return BatchReply(position=self._take_frames(piece.writer, data))
        key = (piece.rank, piece.kind)
        log = self.logs.get(key, b"")
        if piece.offset <= len(log):
            self.logs[key] = log + data[len(log) - piece.offset :]
        return BatchReply(position=len(self.logs.get(key, b"")))

    def _take_frames(self, writer: str, data: bytes) -> int:
        frames, start = self.frames.setdefault(writer, []), 0
        for frame in complete_frames(data):
            if frame.sequence == len(frames) + 1:
                frames.append(data[start : frame.end])
            start = frame.end
        return len(frames)


class Connection:
    """A websocket as far as it is used."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self.answers: asyncio.Queue[str | None] = asyncio.Queue()
        self.transport = self
        self.ended = False

    async def send(self, message: bytes) -> None:
        assert not self.ended
        fault = self._coordinator.faults.pop() if self._coordinator.faults else "none"
        if fault == "lost message":
            raise ConnectionClosedError(None, None)
        pieces = decode_batch(message)
        self._coordinator.messages.append([piece for piece, _ in pieces])
        answers = [self._coordinator.take(*piece) for piece in pieces]
        if not self._coordinator.silent:
            text = encode_replies(answers)
            self.answers.put_nowait(None if fault == "lost answer" else text)

    async def recv(self) -> str:
        answer = await self.answers.get()
        if answer is None:
            raise ConnectionClosedError(None, None)
        return answer

    def abort(self) -> None:
        self.ended = True

    async def close(self) -> None:
        self.ended = True


class Shared(BatchedApi):
    """An agent's interface whose websocket is one of these."""

    def __init__(self, coordinator: Coordinator) -> None:
        super().__init__(AgentOptions(coordinator="http://nobody:1", data_dir=Path("unused")))
        self._sender = BatchSender(coordinator.dial)


def source(rank: int = 0, job_id: str = "job") -> Source:
    return Source(job_id, 1, rank, f"{rank}-0", generation=1)


async def ship_all(spool: FileShipper) -> None:
    while True:
        try:
            if not await spool.ship():
                return
        except UnavailableError:
            continue


def metric_bytes(count: int) -> bytes:
    tables = [
        [MetricTable(None, [step], [0.0], {"loss": [float(step)]})] for step in range(1, count + 1)
    ]
    return b"".join(encode_frame(n, encode_tables(table)) for n, table in enumerate(tables, 1))


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=4),
    st.lists(st.binary(max_size=3 * SMALL_BYTES // 2), max_size=4),
    st.lists(st.sampled_from(["none", "lost message", "lost answer"]), max_size=6),
)
@settings(max_examples=share_of(40))
def test_batched_items_arrive_exactly_once(
    tmp_path_factory: pytest.TempPathFactory,
    frames: list[int],
    logs: list[bytes],
    faults: list[str],
) -> None:
    folder = tmp_path_factory.mktemp("spools")
    coordinator, most = Coordinator(faults), 1 + sum(fault != "none" for fault in faults)

    async def main() -> None:
        api = Shared(coordinator)
        spools: list[FileShipper] = []
        for rank, count in enumerate(frames):
            path = folder / f"{rank}.bin"
            path.write_bytes(metric_bytes(count))
            spools.append(MetricShipper(source(rank), path, api))
        for rank, data in enumerate(logs):
            path = folder / f"{rank}.log"
            path.write_bytes(data)
            spools.append(LogShipper(source(rank), path, api, "stdout"))
        try:
            async with asyncio.timeout(30):
                await asyncio.gather(*map(ship_all, spools))
        finally:
            await api.close()

    asyncio.run(main())
    for rank, count in enumerate(frames):
        arrived = coordinator.frames.get(f"{rank}-0", [])
        assert b"".join(arrived) == metric_bytes(count)
    for rank, data in enumerate(logs):
        assert coordinator.logs.get((rank, "stdout"), b"") == data
    assert len(coordinator.connections) <= most


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


@pytest.fixture
async def api(coordinator: Coordinator) -> AsyncIterator[Shared]:
    shared = Shared(coordinator)
    yield shared
    await shared.close()
    assert all(connection.ended for connection in coordinator.connections)


async def test_concurrent_items_share_one_message(coordinator: Coordinator, api: Shared) -> None:
    for _ in range(2):
        await asyncio.gather(
            *(api.send_metrics(source(rank), metric_bytes(1)) for rank in range(8)),
            api.send_logs(source(), "stdout", 0, b"hello"),
            api.send_logs(source(job_id="other"), "stderr", 0, b"hello"),
        )
    assert [len(message) for message in coordinator.messages] == [10, 10]
    assert len(coordinator.connections) == 1


async def test_batch_respects_its_size_limit(coordinator: Coordinator, api: Shared) -> None:
    count = 2 * MAX_BATCH_BYTES // SMALL_BYTES + 1
    data = bytes(SMALL_BYTES)
    answers = await asyncio.gather(
        *(api.send_logs(source(rank), "stdout", 0, data) for rank in range(count))
    )
    assert answers == [SMALL_BYTES] * count
    sizes = [sum(piece.size for piece in message) for message in coordinator.messages]
    assert sizes == [MAX_BATCH_BYTES, MAX_BATCH_BYTES, SMALL_BYTES]


async def test_large_item_is_sent_alone_with_its_source(
    coordinator: Coordinator, api: Shared
) -> None:
    """By the generation of its writer the coordinator knows what of it is void."""
    requests: list[tuple[str, int]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked = request.url.raw_path.decode().partition("/agent/")[2]
        requests.append((asked, len(request.content)))
        logs = request.url.path.endswith("logs")
        return httpx.Response(200, json={"next_offset" if logs else "sequence": 1})

    api._http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    owner, small, large = Source("job", 2, 1, "1-a", 3), metric_bytes(1), bytes(SMALL_BYTES + 1)
    for data in (small, large):
        await api.send_metrics(owner, data)
        await api.send_logs(owner, "stderr", 0, data)
    await api.send_events(owner, small)
    about: dict[str, Any] = {"job_id": "job", "attempt": 2, "generation": 3, "size": len(small)}
    assert coordinator.messages == [
        [BatchItem(kind="metrics", writer="1-a", **about)],
        [BatchItem(kind="stderr", rank=1, **about)],
    ]
    assert requests == [
        ("jobs/job/attempts/2/metrics?writer=1-a&generation=3", len(large)),
        ("jobs/job/attempts/2/logs?rank=1&stream=stderr&offset=0&generation=3", len(large)),
        ("jobs/job/attempts/2/events?writer=1-a&generation=3", len(small)),
    ]


async def test_refused_item_does_not_block_others(coordinator: Coordinator, api: Shared) -> None:
    coordinator.refused_jobs = {"gone"}
    gone, answer = await asyncio.gather(
        api.send_logs(source(job_id="gone"), "stdout", 0, b"x"),
        api.send_logs(source(), "stdout", 0, b"hello"),
        return_exceptions=True,
    )
    assert isinstance(gone, RefusedError)
    assert (gone.status, gone.detail, answer) == (404, "there is no such job", 5)


async def test_batch_leaves_an_unresponsive_coordinator(
    coordinator: Coordinator, api: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator.silent = True
    monkeypatch.setattr(batched_api, "ANSWER_SECONDS", 0.01)
    with pytest.raises(UnavailableError, match="no answer within"):
        await api.send_logs(source(), "stdout", 0, b"hello")
    assert coordinator.connections[0].ended
    coordinator.silent = False
    monkeypatch.undo()
    assert await api.send_logs(source(), "stdout", 0, b"hello") == 5


async def test_cancelled_sender_does_not_disturb_others(
    coordinator: Coordinator, api: Shared
) -> None:
    coordinator.silent = True
    leaves = asyncio.create_task(api.send_logs(source(), "stdout", 0, b"hello"))
    await until("a message", lambda: coordinator.messages)
    stays = asyncio.create_task(api.send_logs(source(1), "stdout", 0, b"world"))
    leaves.cancel()
    await asyncio.wait({leaves})
    coordinator.silent = False
    answer = encode_replies([BatchReply(position=5)])
    coordinator.connections[0].answers.put_nowait(answer)
    assert await stays == 5
    assert coordinator.logs == {(0, "stdout"): b"hello", (1, "stdout"): b"world"}


async def test_nothing_waits_for_an_agent_that_ends(coordinator: Coordinator, api: Shared) -> None:
    coordinator.silent = True
    sent = asyncio.create_task(api.send_logs(source(), "stdout", 0, b"hello"))
    await until("a message", lambda: coordinator.messages)
    await api.close()
    with pytest.raises(UnavailableError):
        await sent


@pytest.mark.parametrize(
    ("status", "expected"),
    [(410, RefusedError), *((later, UnavailableError) for later in (400, 401, 403, 404, 421, 503))],
)
async def test_only_a_removed_node_drops_its_uploads(
    status: int, expected: type[Exception]
) -> None:
    async def dial() -> Any:
        raise InvalidStatus(Response(status, "why", Headers()))

    piece = BatchItem(job_id="job", attempt=1, kind="stdout", size=1)
    with pytest.raises(expected, match="why"):
        await BatchSender(dial).send(piece, b"x")
