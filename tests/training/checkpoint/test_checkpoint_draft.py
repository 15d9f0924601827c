"""A checkpoint is there as a whole or not at all: under kills, full disks and broken ones."""

import errno
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from support.checkpoint_writer import write

from trainhall.training.checkpoint.draft import Draft
from trainhall.training.checkpoint.manifest import Manifest, verify_folder
from trainhall.training.checkpoint.names import PartialName, Token, scan
from trainhall.training.checkpoint.removal import remove_leftovers

TESTS = Path(__file__).parents[2]
CALLS = "mkdir,write,fsync,rename,unlinkat,unlink,rmdir"
"""The system calls by which a checkpoint is written and an old one removed."""


def manifest_of(draft: Draft, token: Token) -> Manifest:
    return Manifest(
        job_id=token.job_id,
        attempt=token.attempt,
        generation=token.generation,
        step=draft.name.step,
        created_at="2026-01-01T00:00:00Z",
        world_size=1,
        files=draft.files,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/fd")
def test_all_is_durable_before_the_name_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def traced_fsync(fd: int) -> None:
        trace.append(f"fsync {os.path.relpath(os.readlink(f'/proc/self/fd/{fd}'), tmp_path)}")
        fsync(fd)

    def traced_rename(self: Path, target: Path) -> Path:
        trace.append(f"rename {target.name}")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", traced_fsync)
    monkeypatch.setattr(Path, "rename", traced_rename)
    write(tmp_path / "new", 1, 7)
    partial = f"new/{PartialName.of(Token('job', 1, 1), 7)}"
    assert trace == [
        "fsync .",
        f"fsync {partial}/tensors-0.safetensors",
        f"fsync {partial}/tensors-1.safetensors",
        f"fsync {partial}/manifest.json",
        f"fsync {partial}",
        "rename step-00000007-a1-g1",
        "fsync new",
    ]


def test_a_commit_tells_every_file_the_manifest_last(tmp_path: Path) -> None:
    token = Token("job", 2, 3)
    draft = Draft.create(tmp_path, token, 7)
    draft.write("a.bin", [b"12", b"", bytearray(b"345")])
    committed = draft.commit(manifest_of(draft, token))
    event = committed.event()
    assert event["name"] == "step-00000007-a2-g3"
    assert event["step"] == 7
    assert [file["path"] for file in event["files"]] == ["a.bin", "manifest.json"]
    assert event["size"] == sum(p.stat().st_size for p in committed.path.iterdir())
    assert (committed.path / "a.bin").read_bytes() == b"12345"


@pytest.mark.parametrize("occupy", [Path.mkdir, Path.touch])
def test_nothing_is_ever_overwritten(tmp_path: Path, occupy: Callable[[Path], None]) -> None:
    token = Token("job", 1, 1)
    draft = Draft.create(tmp_path, token, 7)
    draft.write("a.bin", [b"new"])
    occupy(draft.target)
    with pytest.raises(FileExistsError, match="never overwritten"):
        draft.commit(manifest_of(draft, token))
    with pytest.raises(FileExistsError, match="never overwritten"):
        Draft.create(tmp_path, token, 7)
    with pytest.raises(FileExistsError):
        draft.write("a.bin", [b"again"])


def test_a_manifest_of_another_checkpoint_is_refused(tmp_path: Path) -> None:
    draft = Draft.create(tmp_path, Token("job", 1, 1), 7)
    with pytest.raises(ValueError, match="does not belong to step-00000007-a1-g1"):
        draft.commit(manifest_of(Draft.create(tmp_path, Token("job", 1, 1), 8), Token("job", 1, 1)))


def test_a_failed_try_of_the_same_writer_is_replaced(tmp_path: Path) -> None:
    Draft.create(tmp_path, Token("job", 1, 1), 7).write("stale.bin", [b"stale"])
    write(tmp_path, 1, 7)
    assert [f.path.name for f in scan(tmp_path)] == ["step-00000007-a1-g1"]
    assert not (tmp_path / "step-00000007-a1-g1" / "stale.bin").exists()


def strace(
    options: list[str], folder: Path, *, log: Path = Path("/dev/null")
) -> subprocess.CompletedProcess[str]:
    """Run a save of step 2 and the removal of step 1 under strace."""
    command = [sys.executable, "-m", "support.checkpoint_writer", str(folder), "2", "2"]
    return subprocess.run(
        ["strace", "-f", "-qq", "-o", str(log), *options, *command],
        cwd=TESTS,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="session")
def tracer() -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed: no kills at system calls")
    command = ["strace", "-qq", "-o", "/dev/null", "true"]
    probe = subprocess.run(command, capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"strace may not trace here: {probe.stderr.strip()}")


def trace_calls(folder: Path) -> list[tuple[str, int]]:
    """The system calls of a whole save and removal, each with its number among those of its kind.

    strace counts every kind by itself.
    """
    log = folder.parent / "trace"
    assert strace(["-e", f"trace={CALLS}"], folder, log=log).returncode == 0
    counts: Counter[str] = Counter()
    calls = []
    for line in log.read_text().splitlines():
        name = line.split(None, 1)[1].partition("(")[0]
        counts[name] += 1
        calls.append((name, counts[name]))
    return calls


def begin(folder: Path) -> None:
    write(folder, 1, 1)


def check_after_crash(folder: Path) -> list[int]:
    """What a reader sees is whole, and the next attempt gets rid of the rest."""
    steps = [found.name.step for found in scan(folder)]
    assert steps in ([1], [2, 1], [2])
    assert [verify_folder(found.path) for found in scan(folder)] == [[]] * len(steps)
    remove_leftovers(folder, Token("job", 3, 1))
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []
    write(folder, 3, 3)
    assert [found.name.step for found in scan(folder)] == [3]
    return steps


@pytest.mark.usefixtures("tracer")
def test_a_kill_at_any_system_call_leaves_whole_checkpoints(tmp_path: Path) -> None:
    folder = tmp_path / "reference"
    begin(folder)
    calls = trace_calls(folder)
    assert len(calls) > 15
    seen: set[tuple[int, ...]] = set()
    for name, number in calls:
        target = tmp_path / f"{name}-{number}"
        begin(target)
        kill = f"inject={name}:signal=KILL:when={number}"
        killed = strace(["-e", f"trace={name}", "-e", kill], target)
        assert killed.returncode != 0, f"{name} {number}"
        seen.add(tuple(check_after_crash(target)))
    # The kills did fall before, within and after the commit and the removal.
    assert seen == {(1,), (2, 1), (2,)}


@pytest.mark.usefixtures("tracer")
@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
def test_a_disk_that_fails_leaves_the_checkpoint_before(tmp_path: Path, error: str) -> None:
    folder = tmp_path / "checkpoints"
    begin(folder)
    for call in ("write", "fsync", "mkdir", "rename"):
        fail = f"inject={call}:error={error}:when=1"
        failed = strace(["-e", f"trace={call}", "-e", fail], folder)
        assert os.strerror(getattr(errno, error)) in failed.stderr
        assert [found.name.step for found in scan(folder)] == [1]
        assert verify_folder(folder / "step-00000001-a1-g1") == []
