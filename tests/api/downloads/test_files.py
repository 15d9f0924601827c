"""Downloads of what jobs wrote: names, ranges and archives."""

import io
import tarfile
from datetime import UTC, datetime
from email.message import Message
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from trainhall.api.downloads import archive, files
from trainhall.api.problems import RefusalError

SHA256 = "ab" * 32
TIME = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "saved"),
    [
        ("model.pt", "model.pt"),
        ("größe 100%.csv", "größe 100%.csv"),
        ('a"; filename="b.exe', "a_; filename=_b.exe"),
        ("a\r\nSet-Cookie: x=1", "a__Set-Cookie_ x=1"),
        ("../../etc\\passwd", "_.._etc_passwd"),
        ("invoice\u202efdp.exe", "invoice_fdp.exe"),
        ("", "file"),
        ("..", "file"),
        (r"a\x0ab", "a_x0ab"),
    ],
)
def test_attachment_has_a_harmless_name(name: str, saved: str) -> None:
    header = files.attachment(name)
    assert header.isascii()
    assert header.isprintable()
    parsed = Message()
    parsed["Content-Disposition"] = header
    assert parsed.get_content_disposition() == "attachment"
    assert parsed.get_filename() == saved or not saved.isascii()
    if "filename*" in header:
        encoded = header.partition("filename*=UTF-8''")[2]
        assert httpx.URL(f"http://x/{encoded}").path == f"/{saved}"


def request_with(value: str) -> Request:
    return Request({"type": "http", "headers": [(b"range", value.encode()), (b"other", b"x")]})


@pytest.mark.parametrize(
    ("value", "size", "kept"),
    [
        ("bytes=0-4", 5, True),
        ("bytes=4-", 5, True),
        ("bytes=-3", 5, True),
        ("bytes=2-1", 5, False),
        ("bytes=0-1,3-4", 5, False),
        ("bytes=-", 5, False),
        ("lines=1-2", 5, False),
        ("bytes=x-y", 5, False),
    ],
)
def test_ranges_that_are_none_are_left_out(value: str, size: int, kept: bool) -> None:
    request = request_with(value)
    files.check_range(request, size)
    assert ("range" in dict(Request(request.scope).headers)) is kept


@pytest.mark.parametrize(
    ("value", "size"), [("bytes=5-", 5), ("bytes=9-10", 5), ("bytes=0-", 0), ("bytes=-0", 5)]
)
def test_range_behind_the_end_is_refused(value: str, size: int) -> None:
    with pytest.raises(RefusalError, match=f"the file has {size} bytes") as refused:
        files.check_range(request_with(value), size)
    assert refused.value.status == 416
    assert refused.value.headers == {"Content-Range": f"bytes */{size}"}


async def test_file_is_served_as_harmless_bytes(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"<script>alert(1)</script>")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        opened = (tmp_path / "x").open("rb", buffering=0)
        await files.HashedFileResponse(opened, "x.html", SHA256)(scope, receive, send)

    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        whole = await client.get("/")
        part = await client.get("/", headers={"Range": "bytes=1-6", "If-Range": f'"{SHA256}"'})
        other = await client.get("/", headers={"Range": "bytes=1-6", "If-Range": '"old"'})
    assert (whole.status_code, part.status_code, other.status_code) == (200, 206, 200)
    assert part.text == "script"
    assert part.headers["content-range"] == "bytes 1-6/25"
    for answer in (whole, part):
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-disposition"].startswith("attachment;")
        assert answer.headers["etag"] == f'"{SHA256}"'


def member(folder: Path, path: str, content: bytes) -> archive.Member:
    stored = folder / f"{len(list(folder.iterdir()))}"
    stored.write_bytes(content)
    return archive.Member(path, len(content), TIME, stored)


async def test_archive_has_all_names_and_its_length(tmp_path: Path) -> None:
    contents = {
        "job/a.txt": b"one", "job/größe.csv": b"", "job/line\nbreak": b"x" * 513,
        "job/bad\udcff": b"y" * 512, f"job/{'deep/' * 30}z": b"z" * 600_000,
    }  # fmt: skip
    members = [member(tmp_path, path, content) for path, content in contents.items()]
    sent = b"".join([chunk async for chunk in archive.archive(members)])
    assert len(sent) == archive.archive_size(members)
    assert sent == b"".join([chunk async for chunk in archive.archive(members)])
    with tarfile.open(fileobj=io.BytesIO(sent)) as opened:
        read = {each.name: opened.extractfile(each) for each in opened}
        assert {name: file.read() for name, file in read.items() if file} == contents
        assert {(each.mode, each.mtime, each.uid) for each in opened.getmembers()} == {
            (0o644, TIME.timestamp(), 0)
        }


async def test_archive_breaks_where_a_file_is_gone(tmp_path: Path) -> None:
    members = [member(tmp_path, "job/a", b"one"), member(tmp_path, "job/b", b"two")]
    members[1].content.unlink()
    with pytest.raises(archive.GoneError, match="job/b was removed"):
        _ = [chunk async for chunk in archive.archive(members)]


async def test_empty_archive_is_one(tmp_path: Path) -> None:
    sent = b"".join([chunk async for chunk in archive.archive([])])
    assert len(sent) == archive.archive_size([])
    with tarfile.open(fileobj=io.BytesIO(sent)) as opened:
        assert opened.getnames() == []
