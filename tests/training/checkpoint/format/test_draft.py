"""A checkpoint is durable before it has its name, and is never written over."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.storage.checkpoint_writer import write

from trainhall.training.checkpoint.format.draft import Draft
from trainhall.training.checkpoint.format.manifest import Manifest
from trainhall.training.checkpoint.format.names import PartialName, scan
from trainhall.training.fencing import FencingToken


def manifest_of(draft: Draft, token: FencingToken) -> Manifest:
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
    partial = f"new/{PartialName.of(FencingToken('job', 1, 1), 7)}"
    assert trace == [
        "fsync .",
        f"fsync {partial}/tensors-0.safetensors",
        f"fsync {partial}/tensors-1.safetensors",
        f"fsync {partial}/manifest.json",
        f"fsync {partial}",
        "rename step-00000007-a1-g1",
        "fsync new",
    ]


def test_commit_lists_files_and_manifest_last(tmp_path: Path) -> None:
    token = FencingToken("job", 2, 3)
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
def test_draft_never_overwrites(tmp_path: Path, occupy: Callable[[Path], None]) -> None:
    token = FencingToken("job", 1, 1)
    draft = Draft.create(tmp_path, token, 7)
    draft.write("a.bin", [b"new"])
    occupy(draft.target)
    with pytest.raises(FileExistsError, match="never overwritten"):
        draft.commit(manifest_of(draft, token))
    with pytest.raises(FileExistsError, match="never overwritten"):
        Draft.create(tmp_path, token, 7)
    with pytest.raises(FileExistsError):
        draft.write("a.bin", [b"again"])


def test_manifest_of_another_checkpoint_is_refused(tmp_path: Path) -> None:
    token = FencingToken("job", 1, 1)
    draft = Draft.create(tmp_path, token, 7)
    with pytest.raises(ValueError, match="does not belong to step-00000007-a1-g1"):
        draft.commit(manifest_of(Draft.create(tmp_path, token, 8), token))


def test_draft_replaces_a_failed_try(tmp_path: Path) -> None:
    Draft.create(tmp_path, FencingToken("job", 1, 1), 7).write("stale.bin", [b"stale"])
    write(tmp_path, 1, 7)
    assert [f.path.name for f in scan(tmp_path)] == ["step-00000007-a1-g1"]
    assert not (tmp_path / "step-00000007-a1-g1" / "stale.bin").exists()
