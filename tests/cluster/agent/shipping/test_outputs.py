"""Files that ranks write: which are collected, how they travel, how the next attempt has them."""

import asyncio
import os
import shutil
import socket
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cluster.agent_process import launch_of
from support.examples import share_of
from support.forking.run_as import needs_root, passable_folder
from support.storage.fake_outputs import FakeOutputs

from trainhall.cluster.agent.coordinator_link.http_api import UnavailableError
from trainhall.cluster.agent.os_support.accounts import Owner, hand_over
from trainhall.cluster.agent.shipping import output_restore
from trainhall.cluster.agent.shipping import outputs as outputs_module
from trainhall.cluster.agent.shipping.output_restore import (
    KeptOutputs,
    OutputUnavailableError,
    restore,
)
from trainhall.cluster.agent.shipping.outputs import OutputCollector
from trainhall.cluster.wire.outputs import Stored
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.launch import Launch

CODE = {"train.py": b"print()", "conf/a.yaml": b"a: 1", ".trainhallignore": b"*.tmp\nscratch/\n"}


class Host:
    """An attempt of a script with code of its own."""

    def __init__(self, path: Path, coordinator: FakeOutputs, **spec: object) -> None:
        self.outputs = coordinator
        self.sent = path / "sent"
        for name, data in CODE.items():
            (self.sent / name).parent.mkdir(parents=True, exist_ok=True)
            (self.sent / name).write_bytes(data)
        self.folder = AttemptFolder(path / "attempt")
        self.root = self.folder.path / "code"
        self.folder.path.mkdir()
        shutil.copytree(self.sent, self.root)
        launch = launch_of({"script": {"path": "train.py"}, "code": "0" * 64, **spec})
        self.launch: Launch = launch.model_copy(update={"code": str(self.root)})
        self.restart()

    def restart(self) -> None:
        """As a new agent of the host."""
        self.collector = OutputCollector(self.folder, self.launch, self.outputs, self.sent)

    def write(self, name: str, data: bytes, age: float = 60.0) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        now = path.stat().st_mtime_ns
        os.utime(path, ns=(now, now - int(age * 1e9)))
        return path

    async def end(self) -> dict[str, bytes]:
        """Collect after the ranks' end; what the coordinator has then."""
        while not self.collector.is_done:
            await self.collector.collect(ended=True)
        return {name: self.outputs.read(name) for name in self.outputs.files}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path, FakeOutputs())


async def test_new_and_changed_files_are_sent_once(host: Host) -> None:
    host.write("outputs/model.pt", b"weights")
    host.write("conf/a.yaml", b"a: 2")
    host.write("empty", b"")
    expected = {"outputs/model.pt": b"weights", "conf/a.yaml": b"a: 2", "empty": b""}
    assert await host.end() == expected
    calls = len(host.outputs.calls)
    host.restart()
    assert await host.end() == expected
    assert host.outputs.calls[calls:] == ["stored"]


async def test_job_that_wrote_nothing_asks_nothing(host: Host) -> None:
    assert await host.end() == {}
    assert host.outputs.calls == []


async def test_what_is_no_result_stays(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (".git/HEAD", "pkg/__pycache__/a.pyc", ".venv/bin/x", "a.tmp", "scratch/b"):
        host.write(name, b"x")
    outside = tmp_path / "secret"
    outside.write_bytes(b"x")
    (host.root / "away").symlink_to(outside)
    (host.root / "folder").symlink_to(tmp_path)
    (host.root / "nowhere").symlink_to("nothing")
    os.mkfifo(host.root / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        monkeypatch.chdir(host.root)
        bound.bind("socket")
        host.write("kept/a.pt", b"one")
        (host.root / "latest.pt").symlink_to("kept/a.pt")
        (host.root / "same").symlink_to("kept")
        assert await host.end() == {"kept/a.pt": b"one", "latest.pt": b"one"}
    assert [(s.path, s.why) for s in host.outputs.skipped] == [("away", "link"), ("folder", "link")]


async def test_spec_says_which_files_are_outputs(tmp_path: Path) -> None:
    chosen = {"path": "results", "include": ["*.pt", "*.json"], "exclude": ["tmp-*"]}
    host = Host(tmp_path, FakeOutputs(), outputs=chosen)
    for name in ("results/a.pt", "results/b.log", "results/tmp-c.pt", "d.pt", "results/e/f.json"):
        host.write(name, b"x")
    assert set(await host.end()) == {"results/a.pt", "results/e/f.json"}


async def test_any_file_name_is_stored(host: Host) -> None:
    host.write(os.fsdecode(b"a\nb\xff"), b"x")
    host.write("/".join(5 * ["d" * 250]), b"")
    assert await host.end() == {r"a\x0ab\xff": b"x"}
    assert [s.why for s in host.outputs.skipped] == ["name"]


async def test_too_large_file_is_said_once(host: Host) -> None:
    host.outputs.max_file_bytes = 10
    host.write("big", b"x" * 11)
    host.write("small", b"x")
    await host.collector.collect(ended=False)
    await host.collector.collect(ended=False)
    assert set(await host.end()) == {"small"}
    assert [(s.path, s.size, s.why) for s in host.outputs.skipped] == [("big", 11, "file_limit")]


async def test_only_so_many_bytes_of_a_job_are_sent(host: Host) -> None:
    host.outputs.max_bytes = 10
    for name in ("a", "b"):
        host.write(name, name.encode() * 8)
    assert await host.end() == {"a": 8 * b"a"}
    assert host.outputs.calls.count("put 1 files") == 1
    assert [(s.path, s.why) for s in host.outputs.skipped] == [("b", "job_limit")]
    (host.root / "a").unlink()
    host.restart()
    assert await host.end() == {"b": 8 * b"b"}


async def test_deleted_files_go_while_ranks_run_after_two_looks(host: Host) -> None:
    path = host.write("a", b"one", age=60)
    await host.end()
    host.restart()
    path.unlink()
    await host.collector.collect(ended=False)
    assert set(host.outputs.files) == {"a"}
    host.write("a", b"replaced", age=60)
    await host.collector.collect(ended=False)
    path.unlink()
    await host.collector.collect(ended=False)
    await host.collector.collect(ended=False)
    assert host.outputs.files == {}


@pytest.mark.parametrize(("small", "call"), [(2, "put_output"), (3, "received_outputs")])
async def test_file_that_is_written_to_is_taken_later(
    host: Host, monkeypatch: pytest.MonkeyPatch, small: int, call: str
) -> None:
    monkeypatch.setattr(outputs_module, "SMALL_BYTES", small)
    path = host.write("a", b"one")
    await host.collector.collect(ended=False)
    assert host.outputs.files == {}, "its inode was changed a moment ago"
    original = getattr(host.outputs, call)

    async def changes_meanwhile(*args: object) -> object:
        path.write_bytes(b"two, longer")
        monkeypatch.setattr(host.outputs, call, original)
        return await original(*args)

    monkeypatch.setattr(host.outputs, call, changes_meanwhile)
    assert await host.end() == {"a": b"two, longer"}


async def test_small_files_share_requests(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs_module, "SMALL_BYTES", 9)
    monkeypatch.setattr(outputs_module, "MAX_ITEMS", 3)
    monkeypatch.setattr(outputs_module, "MAX_TOGETHER_BYTES", 20)
    expected = {f"{number}": bytes([number]) for number in range(4)}
    expected |= {"5": b"x" * 9, "6": b"y" * 9, "7": b"z" * 9, "large": b"x" * 10, "empty": b""}
    for name, data in expected.items():
        host.write(name, data)
    assert await host.end() == expected
    puts = sorted(call for call in host.outputs.calls if call.startswith("put"))
    assert puts == ["put 0", "put 2 files", "put 3 files", "put 3 files"]


async def test_refused_attempt_comes_to_an_end(host: Host) -> None:
    host.write("a", b"one")
    host.outputs.refuse_with = 409
    assert await host.end() == {}


@given(
    files=st.dictionaries(
        st.sampled_from(["a", "b/c", "d"]), st.binary(max_size=200), min_size=1, max_size=3
    ),
    breaks=st.lists(st.integers(0, 200), max_size=6),
    restarts=st.booleans(),
    small=st.sampled_from([0, 50, 200]),
)
@settings(max_examples=share_of(30), deadline=None)
def test_interrupted_uploads_end_with_all_files(
    files: dict[str, bytes], breaks: list[int], restarts: bool, small: int
) -> None:
    async def run(folder: Path) -> None:
        host = Host(folder, FakeOutputs(breaks=breaks.copy()))
        for name, data in files.items():
            host.write(name, data)
        for _ in range(len(breaks) + 1):
            try:
                assert await host.end() == files
                break
            except UnavailableError:
                assert set(host.outputs.files) <= set(files)
                if restarts:
                    host.restart()
        again = folder / "again"
        again.mkdir()
        await restore(host.outputs, KeptOutputs(folder / "kept"), "job", 2, 0, again)
        assert {name: (again / name).read_bytes() for name in files} == files

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(outputs_module, "SMALL_BYTES", small)
        asyncio.run(run(Path(folder)))


async def test_next_attempt_has_the_files_and_sends_none(host: Host, tmp_path: Path) -> None:
    host.write("state.json", b"{}")
    host.write("conf/a.yaml", b"a: 2")
    sent = await host.end()
    (tmp_path / "next").mkdir()
    after = Host(tmp_path / "next", host.outputs)
    after.launch = after.launch.model_copy(update={"attempt": 2})
    after.restart()
    await restore(host.outputs, KeptOutputs(tmp_path / "kept"), "job", 2, 0, after.root)
    assert {name: (after.root / name).read_bytes() for name in sent} == sent
    host.outputs.calls.clear()
    assert await after.end() == sent
    assert host.outputs.calls == ["stored"]
    (after.root / "state.json").unlink()
    after.restart()
    assert set(await after.end()) == {"conf/a.yaml"}


async def test_what_the_host_kept_is_not_fetched_again(host: Host, tmp_path: Path) -> None:
    for name in ("a", "copy of a"):
        host.write(name, b"one")
    host.write("b", b"two")
    host.write("c", b"three")
    await host.end()
    kept = KeptOutputs(tmp_path / "kept")
    kept.keep("job", host.collector.unchanged())
    damaged = tmp_path / "kept" / "job" / host.outputs.files["c"].sha256
    damaged.write_bytes(b"third")
    host.outputs.calls.clear()
    again = tmp_path / "again"
    again.mkdir()
    await restore(host.outputs, kept, "job", 2, 0, again)
    assert host.outputs.calls == ["stored", "get"]
    found = {path.name: path.read_bytes() for path in again.iterdir()}
    assert found == {"a": b"one", "copy of a": b"one", "b": b"two", "c": b"three"}


async def test_kept_files_have_a_limit(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.write("a", b"one")
    await host.end()
    monkeypatch.setattr(output_restore, "KEPT_BYTES", 2)
    KeptOutputs(tmp_path / "kept").keep("job", host.collector.unchanged())
    assert list((tmp_path / "kept").iterdir()) == []


@needs_root
async def test_link_put_in_place_of_a_folder_leads_nowhere() -> None:
    """The job swaps its folder after it was looked into."""

    class Swaps(FakeOutputs):
        async def stored_outputs(self, job_id: str, attempt: int, rank: int) -> Stored:
            (host.root / "folder").rename(host.root / "moved")
            (host.root / "folder").symlink_to(secret)
            return await super().stored_outputs(job_id, attempt, rank)

    with passable_folder() as folder:
        host = Host(folder, Swaps())
        host.write("own", b"one")
        own = host.write("folder/shadow", b"two")
        secret = folder / "secret"
        secret.mkdir(mode=0o700)
        # With the size, time and inode of what was found: only the rights to it are missing.
        (secret / "shadow").hardlink_to(own)
        hand_over(host.folder.path, Owner(65534, 65534))
        host.restart()
        assert await host.end() == {"own": b"one"}


def test_files_with_names_elsewhere_are_not_kept(tmp_path: Path) -> None:
    """The next attempt would share them, and be given them."""
    (tmp_path / "data").write_bytes(b"a data set")
    (tmp_path / "data").chmod(0o400)
    (tmp_path / "link").hardlink_to(tmp_path / "data")
    kept = KeptOutputs(tmp_path / "kept")
    kept.keep("job", {"0" * 64: [tmp_path / "link"]})
    assert not list((tmp_path / "kept").glob("*/*"))
    assert (tmp_path / "data").read_bytes() == b"a data set"


@needs_root
def test_only_files_of_the_jobs_user_are_kept(tmp_path: Path) -> None:
    """Its other processes put links into its folder while the agent moves the files."""
    other_user = Owner(65534, 65534)
    secret = tmp_path / "secret" / "shadow"
    own = tmp_path / "attempt" / "own"
    for path in (secret, own, own.with_name("of-root"), own.with_name("link")):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"one")
    own.with_name("link").unlink()
    own.with_name("link").symlink_to(secret)
    (own.parent / "folder").symlink_to(secret.parent)
    for path in (own, own.with_name("link"), own.parent / "folder"):
        os.chown(path, *other_user, follow_symlinks=False)
    paths = [own, own.with_name("of-root"), own.with_name("link"), own.parent / "folder" / "shadow"]
    kept = KeptOutputs(tmp_path / "kept")
    kept.keep("job", {f"{n}": [path] for n, path in enumerate(paths)}, other_user)
    assert [path.name for path in (tmp_path / "kept").glob("*/*")] == ["0"]
    assert secret.read_bytes() == b"one"


async def test_damaged_file_of_the_coordinator_is_not_restored(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.write("a", b"one")
    await host.end()
    host.outputs.contents[host.outputs.files["a"].sha256] = b"eno"
    again = tmp_path / "again"
    again.mkdir()
    with pytest.raises(OutputUnavailableError, match="a arrived damaged 3 times"):
        await restore(host.outputs, KeptOutputs(tmp_path / "kept"), "job", 2, 0, again)
    assert list(again.iterdir()) == []


async def test_job_without_code_leaves_its_outputs_folder(tmp_path: Path) -> None:
    launch = launch_of({"script": {"path": "/srv/train.py"}})
    folder = AttemptFolder(tmp_path / "attempt")
    (folder.path / "outputs").mkdir(parents=True)
    (folder.path / "outputs" / "a").write_bytes(b"one")
    (folder.path / "launch.json").write_bytes(b"{}")
    outputs = FakeOutputs()
    collector = OutputCollector(folder, launch, outputs, None)
    await collector.collect(ended=True)
    assert set(outputs.files) == {"a"}
