"""Files that jobs have written, as their users get them."""

import hashlib
import io
import tarfile
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi import FastAPI
from support.storage.stored import pieces

from trainhall.cluster.coordinator import Coordinator
from trainhall.cluster.wire.outputs import Commit, File
from trainhall.db.documents import Allocation
from trainhall.db.models import Attempt

TIME = datetime(2026, 11, 20, 12, tzinfo=UTC)
HTML = b"<script>alert(document.cookie)</script>"
FILES = {
    "index.html": HTML, "a b/100%.txt": b"", r"line\x0abreak": b"1", r"back\\slash": b"2",
    "gr\u00f6\u00dfe.csv": b"a,b\n", r"bad\xff": b"3", "x/?#&=.bin": bytes(range(256)),
}  # fmt: skip


async def write(
    coordinator: Coordinator, job_id: str, files: dict[str, bytes], rank: int = 0
) -> None:
    """A host uploads files, as attempt 1."""
    uploads, named = coordinator.outputs.uploads, []
    for path, data in files.items():
        sha256 = hashlib.sha256(data).hexdigest()
        await uploads.receive(job_id, 1, sha256, pieces(data, 4096), size=len(data))
        named.append(File(path=path, size=len(data), sha256=sha256, modified_at=TIME))
    reply = await uploads.commit(job_id, 1, Commit(rank=rank, files=named))
    assert reply.missing == []


@pytest.fixture
async def job(app: FastAPI, client: httpx.AsyncClient) -> str:
    """A job whose first attempt has written files."""
    spec: dict[str, Any] = {"name": "writer", "script": {"path": "/train.py"}}
    job_id: str = (await client.post("/api/v1/training/jobs", json=spec)).json()["id"]
    coordinator: Coordinator = app.state.coordinator
    async with coordinator.db.transaction() as session:
        session.add(
            Attempt(
                job_id=job_id, number=1, state="failed", reason="", world_size=1,
                allocation=Allocation([]), started_at=TIME, finished_at=TIME,
            )
        )  # fmt: skip
    await write(coordinator, job_id, FILES)
    return job_id


def url(job: str, path: str | None = None) -> str:
    below = "" if path is None else f"/files/{quote(path)}"
    return f"/api/v1/outputs/jobs/{job}{below}"


async def test_outputs_are_listed_page_by_page(client: httpx.AsyncClient, job: str) -> None:
    whole = (await client.get(url(job))).json()
    assert sorted(each["path"] for each in whole["items"]) == sorted(FILES)
    assert whole["next_cursor"] is None
    found, asked = [], {"limit": "2"}
    while asked:
        page = (await client.get(url(job), params=asked)).json()
        found += page["items"]
        cursor = page["next_cursor"]
        asked = {"limit": "2", "cursor": cursor} if cursor else {}
    assert found == whole["items"]


async def test_folder_is_listed_by_itself(client: httpx.AsyncClient, job: str) -> None:
    root = (await client.get(url(job), params={"nested": "false"})).json()
    assert root["folders"] == [
        {"path": "a b/", "files": 1, "size": 0},
        {"path": "x/", "files": 1, "size": 256},
    ]
    assert root["totals"] == {"files": 7, "size": 302, "ranks": [0]}
    asked = {"nested": "false", "folder": "x", "find": ".BIN"}
    inner = (await client.get(url(job), params=asked)).json()
    assert [each["path"] for each in inner["items"]] == ["x/?#&=.bin"]
    assert inner["folders"] == []


@pytest.mark.parametrize(
    ("name", "value"), [("nested", "maybe"), ("folder", "x" * 1025), ("find", "x" * 257)]
)
async def test_bad_parameter_of_the_list_is_named(
    client: httpx.AsyncClient, job: str, name: str, value: str
) -> None:
    answer = await client.get(url(job), params={name: value})
    assert answer.status_code == 422
    assert [each["field"] for each in answer.json()["errors"]] == [name]


async def test_every_name_is_downloaded(client: httpx.AsyncClient, job: str) -> None:
    for path, content in FILES.items():
        answer = await client.get(url(job, path))
        assert (answer.status_code, answer.content) == (200, content), path
        assert answer.headers["etag"] == f'"{hashlib.sha256(content).hexdigest()}"'


async def test_html_of_a_job_is_no_page(client: httpx.AsyncClient, job: str) -> None:
    answer = await client.get(url(job, "index.html"))
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == 'attachment; filename="index.html"'
    assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_ranges_and_known_files(client: httpx.AsyncClient, job: str) -> None:
    path = url(job, "index.html")
    part = await client.get(path, headers={"Range": "bytes=1-6"})
    assert (part.status_code, part.content) == (206, HTML[1:7])
    behind = await client.get(path, headers={"Range": "bytes=99-"})
    assert behind.status_code == 416
    assert behind.headers["content-range"] == f"bytes */{len(HTML)}"
    assert behind.json()["detail"].endswith("begins after the end: the file has 39 bytes")
    several = await client.get(path, headers={"Range": "bytes=0-1,4-5"})
    assert (several.status_code, several.content) == (200, HTML)
    known = await client.get(path, headers={"If-None-Match": f'"x", {part.headers["etag"]}'})
    assert (known.status_code, known.content) == (304, b"")


async def test_archive_has_every_file(client: httpx.AsyncClient, job: str) -> None:
    answer = await client.get(f"{url(job)}.tar")
    assert answer.headers["content-disposition"] == f'attachment; filename="{job}.tar"'
    assert int(answer.headers["content-length"]) == len(answer.content)
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        read = {each.name: archive.extractfile(each) for each in archive}
    assert set(read) == {
        f"{job}/{name}"
        for name in ("index.html", "a b/100%.txt", "line\nbreak", "back\\slash",
                     "gr\u00f6\u00dfe.csv", "bad\udcff", "x/?#&=.bin")
    }  # fmt: skip
    assert (await client.get(f"{url(job)}.tar")).content == answer.content


async def test_file_of_the_lowest_rank_is_shown(
    app: FastAPI, client: httpx.AsyncClient, job: str
) -> None:
    await write(app.state.coordinator, job, {"index.html": b"other", "own": b"4"}, rank=4)
    listed = {each["path"]: each for each in (await client.get(url(job))).json()["items"]}
    assert (listed["index.html"]["rank"], listed["own"]["rank"]) == (0, 4)
    fourth = (await client.get(url(job), params={"rank": 4})).json()["items"]
    assert [each["path"] for each in fourth] == ["index.html", "own"]
    assert (await client.get(url(job, "index.html"), params={"rank": 4})).content == b"other"
    assert (await client.get(url(job, "own"))).content == b"4"
    assert (await client.get(url(job, "own"), params={"rank": 0})).status_code == 404


async def test_other_paths_are_not_found(client: httpx.AsyncClient, job: str) -> None:
    for path in ("absent", "../index.html", "x", "index.html/", r"line\x0Abreak"):
        answer = await client.get(url(job, path))
        assert answer.status_code == 404, path
        assert answer.headers["content-type"] == "application/problem+json"


async def test_replaced_content_is_not_found(
    app: FastAPI, client: httpx.AsyncClient, job: str
) -> None:
    outputs = app.state.coordinator.outputs
    output, content = await outputs.find(job, "index.html")
    await write(app.state.coordinator, job, {"index.html": b"new"})
    assert not content.exists()
    assert (await client.get(url(job, output.path))).content == b"new"
