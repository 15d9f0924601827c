"""Data sets on a host: downloaded once, continued, verified, unpacked safely, and described."""

import asyncio
import hashlib
import io
import os
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from trainhall.cluster.agent.data import download, fetch, inspect, unpack
from trainhall.cluster.agent.data.preparation import DataSets, PreparedData
from trainhall.cluster.agent.data.programs import DataFailedError, Programs
from trainhall.cluster.agent.data.store import DataStore
from trainhall.cluster.agent.data_dir import DataDir
from trainhall.training.spec.world.data import DataSpec

CONTENT = bytes(range(256)) * 40
SHA = hashlib.sha256(CONTENT).hexdigest()


class Web:
    """A server that counts what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.cut = 0
        """Bytes after which the next answer breaks off."""
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                web.answer(self)

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append((request.path, dict(request.headers)))
        if request.path == "/elsewhere":
            request.send_response(302)
            request.send_header("Location", self.url.replace("127.0.0.1", "localhost") + "/file")
            request.end_headers()
            return
        if request.path != "/file":
            request.send_error(404)
            return
        begin = int(request.headers.get("Range", "bytes=0-")[6:-1])
        request.send_response(206 if begin else 200)
        if begin:
            total = len(CONTENT)
            request.send_header("Content-Range", f"bytes {begin}-{total - 1}/{total}")
        request.send_header("Content-Length", str(len(CONTENT) - begin))
        request.end_headers()
        end, self.cut = self.cut or len(CONTENT), 0
        request.wfile.write(CONTENT[begin:end])


@pytest.fixture
def web() -> Iterator[Web]:
    found = Web()
    thread = threading.Thread(target=found.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield found
    found.server.shutdown()
    found.server.server_close()
    thread.join()


def at(tmp_path: Path, **options: Any) -> DataSets:
    data_dir = DataDir(tmp_path / "agent")
    data_dir.make()
    store = DataStore(data_dir.data, list, readable=False, **options) if options else None
    return DataSets(data_dir, os.environ, store=store)


async def get(sets: DataSets, said: list[str] | None = None, **spec: Any) -> PreparedData:
    spec = {"name": "corpus", "sha256": SHA, **spec}
    said = [] if said is None else said
    return await sets.prepare([DataSpec(**spec)], {"T": "canary"}, said.append)


@pytest.mark.processes
async def test_broken_download_continues_and_counts_once(
    tmp_path: Path, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download.Download, "first_wait", 0.0)
    web.cut = 3000
    sets, said = at(tmp_path), list[str]()
    one, two = await asyncio.gather(*(get(sets, said, url=f"{web.url}/file") for _ in range(2)))
    path = Path(one.paths["corpus"])
    assert await asyncio.to_thread(path.read_bytes) == CONTENT
    assert path.name == "file"
    assert two.paths == one.paths
    assert one.found[0].sha256 == SHA
    assert (one.found[0].bytes, one.found[0].files) == (len(CONTENT), 1)
    assert [headers.get("Range") for _, headers in web.asked] == [None, "bytes=3000-"]
    assert os.lstat(path).st_mode & 0o222 == 0
    assert any("downloading data set corpus" in words for words in said)


@pytest.mark.processes
async def test_other_hosts_get_no_secret(tmp_path: Path, web: Web) -> None:
    headers = {"Authorization": "Bearer ${T}"}
    sets = at(tmp_path)
    private = await get(sets, url=f"{web.url}/elsewhere", headers=headers)
    (first, sent), (second, passed) = web.asked
    assert (first, second) == ("/elsewhere", "/file")
    assert sent["Authorization"] == "Bearer canary"
    assert "Authorization" not in passed
    # Whoever knows the hash alone gets a download of their own.
    assert (await get(sets, url=f"{web.url}/file")).paths != private.paths


@pytest.mark.parametrize("value", ["se-cr-et\n", "se-cr-ét", "se\tcr-et "])
async def test_secret_that_no_header_can_hold(tmp_path: Path, value: str) -> None:
    spec = DataSpec(
        name="corpus", sha256=SHA, url="http://127.0.0.1:1/file", headers={"X-Token": "a ${T}"}
    )
    with pytest.raises(DataFailedError, match=r"header X-Token.* printable ASCII") as raised:
        await at(tmp_path).prepare([spec], {"T": value}, lambda _: None)
    assert "cr-" not in str(raised.value)


@pytest.mark.processes
async def test_bad_downloads_say_why_and_leave_nothing(tmp_path: Path, web: Web) -> None:
    sets = at(tmp_path, limit=5000)
    for url, message in (
        (f"{web.url}/none", "data set corpus: .*/none: 127.0.0.1 answered 404"),
        (f"{web.url}/file", "10.0 KiB or more, and this host keeps at most 4.9 KiB"),
        ("http://169.254.169.254/latest", "an address that hosts keep for themselves"),
    ):
        with pytest.raises(DataFailedError, match=message):
            await get(sets, url=url)
    sets = at(tmp_path)
    with pytest.raises(DataFailedError, match=f"has the SHA-256 {SHA}, and the spec says 000"):
        await get(sets, url=f"{web.url}/file", sha256="0" * 64)
    left = [each.name for each in (tmp_path / "agent" / "data").iterdir()]
    assert [name for name in left if not name.endswith(".lock")] == []


@pytest.mark.processes
async def test_paths_are_described_or_missing(tmp_path: Path) -> None:
    sets, folder = at(tmp_path), tmp_path / "files"
    folder.mkdir()
    (folder / "x").write_bytes(CONTENT)
    file = await get(sets, path=str(folder / "x"))
    assert (file.found[0].kind, file.found[0].sha256) == ("contents", SHA)
    for path, sha256, message in (
        (folder / "y", None, "data set corpus: .*/y cannot be read: No such file"),
        (folder / "x", "0" * 64, f"has the SHA-256 {SHA}"),
        (folder, SHA, "is a folder, and sha256 is for a file"),
    ):
        with pytest.raises(DataFailedError, match=message):
            await get(sets, path=str(path), sha256=sha256)


def test_fingerprint_follows_contents_or_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def describe() -> dict[str, Any]:
        return inspect._describe(tmp_path, whole=False)

    for name in ("b", "a"):
        (tmp_path / name).write_text(name)
    before = describe()
    os.utime(tmp_path / "a", (1, 1))
    assert describe() == before
    assert (before["kind"], before["files"], before["bytes"]) == ("contents", 2, 2)
    (tmp_path / "a").write_text("c")
    assert describe()["sha256"] != before["sha256"]
    monkeypatch.setattr(inspect, "CONTENTS_BYTES", 1)
    large = describe()
    os.utime(tmp_path / "a", (1, 1))
    assert (large["kind"], describe()["sha256"] != large["sha256"]) == ("listing", True)
    monkeypatch.setattr(inspect, "MAX_FILES", 1)
    assert (describe()["files"], describe()["is_partial"]) == (1, True)


def tar_of(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            member.size = 1 if member.isfile() else 0
            tar.addfile(member, io.BytesIO(b"x"))
    return path


def test_archives_stay_in_their_folder(tmp_path: Path) -> None:
    outside, link = tarfile.TarInfo("../out"), tarfile.TarInfo("link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    good = tar_of(tmp_path / "good.tgz", tarfile.TarInfo("a/b"), tarfile.TarInfo("c"))
    (tmp_path / "good").mkdir()
    assert unpack._unpack(good, tmp_path / "good", 2**20) == (2, 2)
    assert (tmp_path / "good" / "a" / "b").read_bytes() == b"x"
    bad = [tar_of(tmp_path / f"{m.name[-3:]}.tgz", m) for m in (outside, link)]
    bad.append(tmp_path / "bad.zip")
    with zipfile.ZipFile(bad[-1], "w") as file:
        file.writestr("../out", "x")
    (tmp_path / "noise.tar").write_bytes(CONTENT)
    for number, archive in enumerate([*bad, tmp_path / "noise.tar"]):
        to = tmp_path / "to" / str(number)
        to.mkdir(parents=True)
        with pytest.raises(unpack._UnpackError):
            unpack._unpack(archive, to, 2**20)
        assert not list(to.iterdir())
    assert not (tmp_path / "to" / "out").exists()
    with pytest.raises(unpack._UnpackError, match="take more than 5,000 bytes"):
        unpack._unpack(good, tmp_path / "good", 5000)


def linked(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


@pytest.mark.parametrize(
    "members",
    [
        [linked("a", "b"), tarfile.TarInfo("a/c")],
        [linked("a", "b"), tarfile.TarInfo("a")],
        [linked("a", "b"), linked("a/c", "d")],
        [linked("a", "b"), linked("c", "a", tarfile.LNKTYPE)],
        [linked("a", "later", tarfile.LNKTYPE), linked("later", "/etc")],
        [tarfile.TarInfo("a/../b")],
    ],
)
def test_nothing_is_unpacked_through_links(
    tmp_path: Path, members: list[tarfile.TarInfo], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, to = tar_of(tmp_path / "bad.tar", *members), tmp_path / "to"
    (to / "b").mkdir(parents=True)
    # Some versions of Python have a filter that can be led out of the folder.
    filters = vars(tarfile)["_NAMED_FILTERS"]
    monkeypatch.setitem(filters, "data", lambda member, _: member)
    with pytest.raises(unpack._UnpackError, match=r"link|outside"):
        unpack._unpack(archive, to, 2**20)
    assert not list((to / "b").iterdir())


def test_folders_and_links_count_towards_the_limit(tmp_path: Path) -> None:
    folder = tarfile.TarInfo("a")
    folder.type = tarfile.DIRTYPE
    archive = tar_of(tmp_path / "many.tar", folder, linked("b", "a"), tarfile.TarInfo("c"))
    (tmp_path / "one").mkdir()
    assert unpack._unpack(archive, tmp_path / "one", 3 * 4096) == (1, 1)
    (tmp_path / "two").mkdir()
    with pytest.raises(unpack._UnpackError, match="take more than 8,192 bytes"):
        unpack._unpack(archive, tmp_path / "two", 2 * 4096)


@pytest.mark.parametrize("address", ["169.254.169.254", "fe80::1%eth0", "::ffff:169.254.1.1"])
def test_addresses_of_hosts_are_refused(address: str) -> None:
    with pytest.raises(fetch._RefusedError):
        fetch._check_address(address, "x.example")
    fetch._check_address("10.0.0.7", "x.example")


def test_old_parts_of_downloads_go_with_the_next_eviction(tmp_path: Path) -> None:
    store = DataStore(tmp_path, list, readable=False, limit=2**20)
    parts = [store.partial(digit * 64) for digit in "abc"]
    for part in parts:
        part.write_bytes(b"x")
    for old in parts[:2]:
        os.utime(old, (0, 0))
    store._wanted[store.path("b" * 64)] = 1
    store._evict()
    assert [part.exists() for part in parts] == [False, True, True]


def test_full_disk_fails_the_download_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = tmp_path / "x.partial"
    part.write_bytes(b"x")
    data = DataSpec(name="a", url="https://x.example/a", sha256=SHA)
    loading = download.Download(Programs({}), data, {}, None, part, 2**40, lambda _: None)
    with pytest.raises(DataFailedError, match=r"and the disk has .* left for it"):
        loading._check_room(2**50, 2**39)
    assert not part.exists()
