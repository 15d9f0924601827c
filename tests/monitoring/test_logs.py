"""Output of ranks: every byte once, every line whole, pages that continue exactly."""

import asyncio
import shutil
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select
from support.examples import share_of
from support.storage.frames import NOW, add_job, revoke

from trainhall.db.database import Database
from trainhall.db.models import JobProgress, LogChunk
from trainhall.monitoring import logs
from trainhall.monitoring.errors import (
    InvalidLogCursorError,
    LineNotFoundError,
    UnknownAttemptError,
)
from trainhall.monitoring.ingest import Ingest
from trainhall.monitoring.lineage import Origin
from trainhall.monitoring.lines import CHUNK_BYTES, LOG_FULL, PIECE_BYTES, cut_lines, split_lines
from trainhall.monitoring.logs import LineId, LogLine, LogPage, read_logs
from trainhall.monitoring.packer import Packer


class Clock:
    def __init__(self) -> None:
        self.time = NOW

    def __call__(self) -> datetime:
        return self.time


class Output:
    """Sends output as an agent does, and reads it."""

    def __init__(self, database: Database) -> None:
        self.clock = Clock()
        self.woken: list[str] = []
        self.database = database
        self.ingest = Ingest(database, self.clock, self.woken.append)
        self.packer = Packer(database, self.clock, self.woken.append)
        self.offsets: dict[tuple[int, int, str], int] = {}

    async def write(
        self, data: bytes, rank: int = 0, stream: str = "stdout", attempt: int = 1
    ) -> None:
        key = attempt, rank, stream
        offset = self.offsets.get(key, 0)
        self.offsets[key] = offset + len(data)
        answer = await self.ingest.logs("job", attempt, rank, stream, offset, data)
        assert answer == self.offsets[key]

    async def wait(self, seconds: float) -> None:
        self.clock.time += timedelta(seconds=seconds)
        await self.packer.pack_once()

    async def texts(self, **options: object) -> list[str]:
        page = await read_logs(self.database, "job", **options)  # type: ignore[arg-type]
        return [line.text for line in page.items]


@pytest.fixture
async def output(database: Database) -> Output:
    await add_job(database, attempts=2)
    return Output(database)


async def all_pages(database: Database, limit: int) -> list[LogLine]:
    lines: list[LogLine] = []
    after = None
    while True:
        page = await read_logs(database, "job", after=after, limit=limit)
        assert len(page.items) <= limit
        if not page.items:
            return lines
        lines += page.items
        after = page.next_cursor


async def test_log_lines_name_their_source(output: Output) -> None:
    await output.write(b"one\ntwo\n")
    await output.write(b"boom\n", rank=1, stream="stderr")
    page = await read_logs(output.database, "job")
    assert page.items == [
        LogLine(1, 0, "stdout", 0, NOW, "one", superseded=False),
        LogLine(1, 0, "stdout", 4, NOW, "two", superseded=False),
        LogLine(1, 1, "stderr", 0, NOW, "boom", superseded=False),
    ]


async def test_rank_on_another_host_starts_new_file(output: Output) -> None:
    """A regrouping gives its number to a process there; both files are shown whole, in the order in
    which they arrive, and each host gets the offset of its own."""
    here, there = Origin(1, "here"), Origin(2, "there")

    async def send(origin: Origin, offset: int, data: bytes) -> int:
        return await output.ingest.logs("job", 1, 1, "stdout", offset, data, origin)

    assert await send(here, 0, b"a first line\nand then it dies in the mi") == 39
    assert await send(there, 0, b"begun\n") == 6
    assert await send(here, 0, b"a first line\nand then it dies in the midst\nof a line\n") == 53
    assert await send(there, 9, b"behind a gap\n") == 6
    assert await send(there, 6, b"done\n") == 11
    assert await send(there, 0, b"begun\ndone\n") == 11
    page = await read_logs(output.database, "job")
    assert [(line.offset, line.text) for line in page.items] == [
        (0, "a first line"),
        (13, "and then it dies in the mi"),
        (39, "begun"),
        (45, "dst"),
        (49, "of a line"),
        (59, "done"),
    ]


async def test_rejoined_host_continues_its_file(output: Output) -> None:
    before, after = Origin(1, "before"), Origin(1, "after")
    send = output.ingest.logs
    assert await send("job", 1, 0, "stdout", 0, b"one\ntwo\n", before) == 8
    assert await send("job", 1, 0, "stdout", 8, b"three\n", after) == 14
    assert await send("job", 1, 0, "stdout", 14, b"four\n", after) == 19
    assert await output.texts() == ["one", "two", "three", "four"]
    # A database that was restored may know less than it has acknowledged.
    assert await send("job", 1, 1, "stdout", 8, b"three\n", after) == 0


async def test_split_line_is_returned_once_complete(output: Output) -> None:
    await output.write(b"a lo")
    await output.write(b"other\n", rank=1)
    assert await output.texts() == ["other"]
    await output.write(b"ng line\nnext")
    assert await output.texts() == ["other", "a long line"]


async def test_idle_partial_line_is_shown(output: Output) -> None:
    await output.write(b"ready\nContinue? ")
    await output.wait(0.5)
    assert await output.texts() == ["ready"]
    output.woken.clear()
    await output.wait(0.6)
    assert await output.texts() == ["ready", "Continue? "]
    assert output.woken == ["job"]
    await output.wait(5)
    await output.write(b"yes\n")
    page = await read_logs(output.database, "job")
    assert [(line.offset, line.text) for line in page.items] == [
        (0, "ready"), (6, "Continue? "), (16, "yes"),
    ]  # fmt: skip


async def test_overlaps_are_trimmed_and_gaps_refused(output: Output) -> None:
    ingest = output.ingest
    assert await ingest.logs("job", 1, 0, "stdout", 0, b"one\ntwo\n") == 8
    assert await ingest.logs("job", 1, 0, "stdout", 4, b"two\nthree\n") == 14
    assert await ingest.logs("job", 1, 0, "stdout", 0, b"one\n") == 14
    assert await ingest.logs("job", 1, 0, "stdout", 20, b"later\n") == 14
    assert await ingest.logs("job", 1, 0, "stdout", 0, b"") == 14
    assert await output.texts() == ["one", "two", "three"]


async def test_logs_refuse_impossible_input(output: Output) -> None:
    with pytest.raises(UnknownAttemptError):
        await output.ingest.logs("job", 9, 0, "stdout", 0, b"x\n")
    for rank, stream, offset in [(0, "trace", 0), (-1, "stdout", 0), (0, "stdout", -1)]:
        with pytest.raises(ValueError, match="stdout or stderr"):
            await output.ingest.logs("job", 1, rank, stream, offset, b"x\n")


async def test_output_beyond_the_limit_is_not_stored(output: Output) -> None:
    """A job that prints without end would fill the disk of everybody."""
    ingest = Ingest(output.database, output.clock, output.woken.append, max_log_bytes=1000)
    line = b"x" * 99 + b"\n"
    assert await ingest.logs("job", 1, 0, "stdout", 0, line * 4) == 400
    assert await ingest.logs("job", 1, 1, "stderr", 0, line * 4) == 400
    assert await ingest.logs("job", 1, 0, "stdout", 400, line * 4) == LOG_FULL
    for rank, offset in ((0, 800), (0, 0), (1, 400), (2, 0)):
        assert await ingest.logs("job", 1, rank, "stdout", offset, line) == LOG_FULL
    assert await ingest.logs("job", 2, 0, "stdout", 0, line) == LOG_FULL, "of the job"
    *stored, note = await output.texts()
    assert stored == ["x" * 99] * 10
    assert note.startswith("[trainhall] the output of this job has reached")
    assert await output.texts(tail=1) == [note]
    await add_job(output.database, "other")
    assert await ingest.logs("other", 1, 0, "stdout", 0, line) == 100


async def test_limit_of_output_cuts_within_a_line(output: Output) -> None:
    ingest = Ingest(output.database, output.clock, output.woken.append, max_log_bytes=10)
    assert await ingest.logs("job", 1, 0, "stdout", 0, b"abcdef") == 6
    assert await ingest.logs("job", 1, 0, "stdout", 6, b"ghijkl") == LOG_FULL
    text, note = await output.texts()
    assert text == "abcdefghij"
    assert note.startswith("[trainhall]")


async def test_filters(output: Output) -> None:
    await output.write(b"a\n")
    await output.write(b"b\n", rank=1)
    await output.write(b"c\n", stream="stderr")
    await output.write(b"d\n", attempt=2)
    assert await output.texts(rank=0) == ["a", "c", "d"]
    assert await output.texts(stream="stderr") == ["c"]
    assert await output.texts(attempt=2) == ["d"]
    assert await output.texts(rank=1, stream="stderr") == []
    assert await output.texts(rank=0, tail=2) == ["c", "d"]


async def test_log_tail_continues_with_its_cursor(output: Output) -> None:
    for i in range(100):
        await output.write(b"line %d\nand %d\n" % (i, i))
    page = await read_logs(output.database, "job", tail=3)
    assert [line.text for line in page.items] == ["and 98", "line 99", "and 99"]
    again = await read_logs(output.database, "job", after=page.next_cursor)
    assert again == LogPage([], page.next_cursor, page.next_cursor, more=False)
    await output.write(b"new\n")
    more = await read_logs(output.database, "job", after=page.next_cursor)
    assert [line.text for line in more.items] == ["new"]
    assert await output.texts(tail=1000) == await output.texts(limit=1000)


@pytest.mark.parametrize("limit", [1, 3, 1000])
async def test_pages_join_without_gap_or_repeat(output: Output, limit: int) -> None:
    for i in range(12):
        await output.write(b"".join(b"%d.%d\n" % (i, j) for j in range(i)), rank=i % 3)
    lines = await all_pages(output.database, limit)
    assert [line.text for line in lines] == [f"{i}.{j}" for i in range(12) for j in range(i)]


async def test_log_text_has_the_lines_of_all_pages(output: Output) -> None:
    await output.write(b"zero\n" * 1200)
    await output.write("é\n".encode(), rank=1)
    pages = [page async for page in logs.log_text(output.database, "job")]
    assert len(pages) == 2
    assert "".join(pages) == "[0] zero\n" * 1200 + "[1] é\n"
    assert [page async for page in logs.log_text(output.database, "job", rank=1)] == ["é\n"]


async def test_log_text_ends_where_output_ended_at_first(output: Output) -> None:
    await output.write(b"zero\n" * 1200)
    pages = logs.log_text(output.database, "job")
    text = await anext(pages)
    await output.write(b"later\n", rank=1)
    assert text + "".join([page async for page in pages]) == "zero\n" * 1200


@pytest.mark.parametrize("limit", [1, 3, 1000])
async def test_pages_join_backwards_too(output: Output, limit: int) -> None:
    for i in range(12):
        await output.write(b"".join(b"%d.%d\n" % (i, j) for j in range(i)), rank=i % 3)
    page = await read_logs(output.database, "job", tail=2)
    lines = page.items
    while page.previous_cursor is not None:
        page = await read_logs(output.database, "job", before=page.previous_cursor, limit=limit)
        assert len(page.items) <= limit
        lines = page.items + lines
    assert [line.text for line in lines] == [f"{i}.{j}" for i in range(12) for j in range(i)]


async def test_log_line_is_found_with_context(output: Output) -> None:
    for i in range(50):
        await output.write(b"line %d\nand %d\n" % (i, i), rank=i % 2)
    every = await all_pages(output.database, 1000)
    for here, line in enumerate(every):
        wanted = LineId(line.attempt, line.rank, line.stream, line.offset)
        page = await read_logs(output.database, "job", at=wanted, limit=10)
        assert page.items == every[max(0, here - 5) :][:10]
    alone = await read_logs(output.database, "job", rank=1, at=wanted, limit=2)
    assert [each.text for each in alone.items] == ["line 49", "and 49"]
    for gone in (
        LineId(1, 0, "stderr", 0),
        LineId(2, 0, "stdout", 0),
        LineId(1, 0, "stdout", 10_000),
    ):
        with pytest.raises(LineNotFoundError):
            await read_logs(output.database, "job", at=gone)


async def test_log_search_covers_all_stored_lines(output: Output) -> None:
    for i in range(200):
        await output.write(b"step %d\n\x1b[31mLoss\x1b[0m: %d\n" % (i, i), rank=i % 2)
    await output.write("Größe\n".encode())
    assert await output.texts(search="loss: 7") == [
        f"\x1b[31mLoss\x1b[0m: {i}" for i in (7, *range(70, 80))
    ]
    assert await output.texts(search="GRÖSSE") == []
    assert await output.texts(search="GRÖßE") == ["Größe"]
    assert await output.texts(search="step 1", rank=0, limit=1000) == [
        f"step {i}" for i in range(200) if i % 2 == 0 and str(i).startswith("1")
    ]
    first = await read_logs(output.database, "job", search="step", limit=150)
    assert (len(first.items), first.more) == (150, True)
    rest = await read_logs(output.database, "job", search="step", after=first.next_cursor)
    assert (len(rest.items), rest.more) == (50, False)
    await output.write(b"step last\n")
    new = await read_logs(output.database, "job", search="step", after=rest.next_cursor)
    assert [line.text for line in new.items] == ["step last"]


async def test_search_stops_after_its_share_of_work(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "SEARCH_BYTES", 1000)
    monkeypatch.setattr(logs, "_CHUNKS_AT_ONCE", 4)
    for i in range(100):
        await output.write(b"x" * 100 + b" %d\n" % i)
    found: list[str] = []
    pages, after, more = 0, None, True
    while more:
        page = await read_logs(output.database, "job", search=" 9", after=after)
        found += [line.text.split()[1] for line in page.items]
        after, more, pages = page.next_cursor, page.more, pages + 1
    assert found == ["9", *map(str, range(90, 100))]
    assert pages > 5


async def test_no_lines_have_a_cursor_too(output: Output) -> None:
    page = await read_logs(output.database, "job", tail=10)
    assert page.items == []
    await output.write(b"first\n")
    assert await output.texts(after=page.next_cursor) == ["first"]
    assert (await read_logs(output.database, "ghost")).items == []


@pytest.mark.parametrize(
    # No base64; then null, a list that is too short, text for a number, one below 0.
    "cursor",
    ["", "x", "é", "WyJsb2dzIiwxXQ", "bnVsbA", "WyJsb2dzIiwiYSIsMV0", "WyJsb2dzIiwtMSwwXQ"],
)
async def test_cursor_that_is_none_is_refused(database: Database, cursor: str) -> None:
    with pytest.raises(InvalidLogCursorError, match="next_cursor"):
        await read_logs(database, "job", after=cursor)


async def test_bytes_that_are_no_text_are_replaced(output: Output) -> None:
    await output.write(b"\xff\xfe caf\xc3\xa9 \x1b[31mred\x1b[0m \0\n")
    assert await output.texts() == ["\ufffd\ufffd café \x1b[31mred\x1b[0m \0"]


async def test_log_keeps_final_progress_bar_state(output: Output) -> None:
    await output.write(b"\r10%\r20%\r30%")
    await output.write(b"\r40%\r\n")
    await output.write(b"dos\r\nunix\n")
    assert await output.texts() == ["20%", "40%", "dos", "unix"]


async def test_logs_of_revoked_attempt_are_void(output: Output) -> None:
    await output.write(b"before\n")
    await revoke(output.database)
    await output.write(b"after\n")
    page = await read_logs(output.database, "job")
    assert [(line.text, line.superseded) for line in page.items] == [
        ("before", False),
        ("after", True),
    ]


async def test_large_log_batch_is_cut_at_lines(output: Output) -> None:
    data = b"".join(b"%08d\n" % i for i in range(100_000))
    await output.write(data)
    async with output.database.session() as session:
        chunks = (await session.execute(select(LogChunk.seq, LogChunk.length))).all()
        assert len(chunks) == -(-len(data) // CHUNK_BYTES)
        assert all(length <= CHUNK_BYTES and length % 9 == 0 for _, length in chunks)
        assert await session.scalar(select(JobProgress.stream_seq)) == len(chunks)
    lines = await all_pages(output.database, 10_000)
    assert [line.text for line in lines] == [f"{i:08d}" for i in range(100_000)]
    assert all(line.offset == 9 * i for i, line in enumerate(lines))


async def test_very_long_line_comes_in_pieces(output: Output) -> None:
    text = "ä€😀x" * 20_000
    for i in range(0, len(text.encode()), 7001):
        await output.write(text.encode()[i : i + 7001])
    await output.write(b"\nend\n")
    *pieces, end = (await read_logs(output.database, "job")).items
    assert "".join(piece.text for piece in pieces) == text
    assert end.text == "end"
    offset = 0
    for piece in pieces:
        size = len(piece.text.encode())
        assert piece.offset == offset
        assert size <= PIECE_BYTES
        offset += size


ANY = st.lists(
    st.sampled_from([b"a", b"\n", b"\r", b"\xc3", b"\xa9", b"\xf0\x9f\x98\x80", b"x" * 9000]),
    max_size=30,
).map(b"".join)


@given(ANY)
def test_cutting_loses_nothing(data: bytes) -> None:
    whole, rest = cut_lines(data)
    assert whole + rest == data
    assert len(rest) < PIECE_BYTES
    end = 0
    for offset, line in split_lines(whole):
        assert offset >= end
        assert set(whole[end:offset]) <= set(b"\r\n") or whole[offset - 1 : offset] == b"\r"
        assert whole[offset : offset + len(line)] == line
        assert len(line) <= PIECE_BYTES
        assert b"\n" not in line
        end = offset + len(line)


@settings(max_examples=share_of(12))
@given(
    data=ANY,
    cuts=st.lists(st.tuples(st.integers(0, 300_000), st.integers(0, 300_000)), max_size=10),
)
def test_any_order_of_requests_stores_the_file(
    sqlite_template: Path,
    tmp_path_factory: pytest.TempPathFactory,
    data: bytes,
    cuts: list[tuple[int, int]],
) -> None:
    """Requests that repeat, overlap, leave gaps: the answers alone lead to the whole file."""

    async def scenario() -> None:
        path = tmp_path_factory.mktemp("logs") / "trainhall.db"
        shutil.copyfile(sqlite_template, path)
        database = Database(f"sqlite:///{path}")
        try:
            await add_job(database)
            ingest = Ingest(database, lambda: NOW, lambda _: None)
            stored = 0
            for a, b in cuts:
                start, end = min(a, b) % (len(data) + 1), max(a, b)
                answer = await ingest.logs("job", 1, 0, "stdout", start, data[start:end])
                if start <= stored:
                    stored = max(stored, min(end, len(data)))
                assert answer == stored
            assert await ingest.logs("job", 1, 0, "stdout", stored, data[stored:]) == len(data)
            await Packer(database, lambda: NOW + timedelta(minutes=1)).pack_once()
            found = (await read_logs(database, "job", limit=1_000_000)).items
            for line in found:
                raw = data[line.offset : line.offset + PIECE_BYTES]
                assert raw.decode("utf-8", "replace").startswith(line.text.rstrip("\ufffd"))
            letters = sum(line.text.count("a") for line in found)
            shown = data.replace(b"\r\n", b"\n")
            assert letters <= shown.count(b"a")
            if b"\r" not in data:
                assert letters == data.count(b"a")
        finally:
            await database.close()

    asyncio.run(scenario())
