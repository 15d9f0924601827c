"""Damage to a checkpoint is found before any file is used, and nothing is ever unpickled."""

import base64
import errno
import io
import json
import os
import pickle
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.cluster.forged import forge
from support.examples import share_of
from support.storage.traced_saves import state

from trainhall.cluster.agent.shipping.checkpoint_transfer import verified
from trainhall.training.checkpoint.checkpointer import Checkpointer
from trainhall.training.checkpoint.export import export
from trainhall.training.checkpoint.format import manifest as manifests
from trainhall.training.checkpoint.format.errors import (
    CheckpointError,
    NoGoodCheckpointError,
    UnreadableCheckpointError,
)
from trainhall.training.checkpoint.format.manifest import (
    FORMAT_VERSION,
    encode_manifest,
    read_files,
    read_manifest,
    verify_folder,
)
from trainhall.training.checkpoint.format.names import MANIFEST, scan
from trainhall.training.checkpoint.format.removal import retire
from trainhall.training.fencing import FencingToken
from trainhall.training.spec.recovery import CheckpointSpec

OLD, NEW = "step-00000001-a1-g1", "step-00000002-a1-g1"
SHARD = "tensors-00000-00000.safetensors"


@pytest.fixture
def saver(tmp_path: Path) -> Checkpointer:
    """With the checkpoints of steps 1 and 2."""
    made = Checkpointer(
        tmp_path / "checkpoints", FencingToken("job", 1, 1), None, lambda done: None
    )
    for step in (1, 2):
        made.save(step, state(step))
        made.wait()
    return made


def test_random_damages_are_all_found_before_use(saver: Checkpointer) -> None:
    rng = random.Random(4)
    folder = saver.folder / NEW
    files = sorted(folder.iterdir())
    whole = {file: file.read_bytes() for file in files}
    for i in range(share_of(1000)):
        # Small files as often as large ones.
        file = files[i % len(files)]
        data = bytearray(whole[file])
        if rng.random() < 0.5:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        else:
            del data[rng.randrange(len(data)) :]
        file.write_bytes(data)
        target = state(0)
        if i % 25:
            with pytest.raises(NoGoodCheckpointError) as caught:
                saver.load([NEW], target)
            notes, expected = caught.value.notes, 0
        else:
            loaded = saver.load([NEW, OLD], target)
            assert loaded is not None
            notes, expected = loaded.notes, 1
        assert str(target["model"]) == str(state(expected)["model"])
        (note,) = notes
        assert (note.name, note.reason) == (NEW, "damaged")
        assert file.name in note.text
        file.write_bytes(whole[file])
    assert saver.load([NEW, OLD], state(0)).name == NEW  # type: ignore[union-attr]


def test_verify_finds_missing_and_ignores_extra_files(saver: Checkpointer) -> None:
    folder = saver.folder / NEW
    (folder / "more.safetensors").write_bytes(b"more")
    assert verify_folder(folder) == []
    assert saver.load([NEW, OLD], state(0)).name == NEW  # type: ignore[union-attr]
    for file in ("state.json", SHARD, "manifest.json"):
        shutil.copy(folder / file, saver.folder / "kept")
        (folder / file).unlink()
        loaded = saver.load([NEW, OLD], state(0))
        assert loaded is not None
        assert loaded.name == OLD
        assert "no such file" in loaded.notes[0].text
        shutil.move(saver.folder / "kept", folder / file)


def test_load_skips_a_removed_folder(saver: Checkpointer) -> None:
    shutil.rmtree(saver.folder / NEW)
    loaded = saver.load([NEW, OLD], state(0))
    assert loaded is not None
    assert (loaded.name, loaded.notes[0].reason) == (OLD, "gone")
    shutil.rmtree(saver.folder)
    with pytest.raises(NoGoodCheckpointError, match="expected a folder, found nothing"):
        saver.load([NEW, OLD], state(0))


def test_load_skips_a_newer_format(
    saver: Checkpointer,
) -> None:
    folder = saver.folder / NEW
    manifest = read_manifest(folder).model_copy(update={"format_version": FORMAT_VERSION + 1})
    (folder / MANIFEST).write_bytes(encode_manifest(manifest))
    loaded = saver.load([NEW, OLD], state(0))
    assert loaded is not None
    (note,) = loaded.notes
    # Its files are not bad: it is not marked corrupt for those who can read it.
    assert (loaded.name, note.reason) == (OLD, "mismatch")
    assert "written by a newer Trainhall; upgrade this one to read it" in note.text


@pytest.mark.parametrize("name", [MANIFEST, SHARD])
@pytest.mark.parametrize(
    ("error", "reason"),
    [(errno.EIO, "unreadable"), (errno.EACCES, "unreadable"), (errno.ENOENT, "damaged")],
)
def test_load_reports_an_unreadable_file(
    saver: Checkpointer, monkeypatch: pytest.MonkeyPatch, name: str, error: int, reason: str
) -> None:
    """A checkpoint reported as damaged is marked for good, and the job loses its steps."""
    whole = manifests.open_within

    def opened(folder: Path, path: str) -> io.FileIO:
        if (folder.name, path) == (NEW, name):
            raise OSError(error, os.strerror(error))
        return whole(folder, path)

    monkeypatch.setattr(manifests, "open_within", opened)
    loaded = saver.load([NEW, OLD], state(0))
    assert loaded is not None
    assert (loaded.name, loaded.notes[0].reason) == (OLD, reason)
    with pytest.raises(NoGoodCheckpointError) as caught:
        saver.load([NEW], state(0))
    # A host may be to blame for the one, and none for the other.
    assert isinstance(caught.value, UnreadableCheckpointError) == (reason == "unreadable")


def test_load_suspects_unmounted_storage(
    saver: Checkpointer,
) -> None:
    for name in (NEW, OLD):
        (saver.folder / name).rename(saver.folder / f"away-{name}")
    with pytest.raises(UnreadableCheckpointError):
        saver.load([NEW, OLD], state(0))
    (saver.folder / f"away-{OLD}").rename(saver.folder / OLD)
    (saver.folder / OLD / SHARD).write_bytes(b"")
    with pytest.raises(NoGoodCheckpointError) as caught:
        saver.load([NEW, OLD], state(0))
    assert not isinstance(caught.value, UnreadableCheckpointError), "it is there, and damaged"


class Trap:
    """Unpickling it leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def in_metadata(folder: Path, data: bytes) -> None:
    """As the free text that a safetensors header may hold."""
    shard = folder / SHARD
    raw = shard.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    header["__metadata__"] = {"pickle": base64.b64encode(data).decode(), "raw": data.hex()}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    shard.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length :])


def in_values(folder: Path, data: bytes) -> None:
    """As a plain value of the state."""
    index = json.loads((folder / "state.json").read_bytes())
    index["values"]["optimizer/step"] = base64.b64encode(data).decode()
    (folder / "state.json").write_text(json.dumps(index))


def beside(name: str) -> Callable[[Path, bytes], None]:
    def plant(folder: Path, data: bytes) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)

    return plant


PLANTED = {
    "a file of DCP": beside(".metadata"),
    "a shard of DCP": beside("__0_0.distcp"),
    "a .pt file": beside("model.pt"),
    "a .bin file": beside("pytorch_model.bin"),
    "a file in a folder": beside("data/evil.pkl"),
    "the tensors": beside(SHARD),
    "the index": beside("state.json"),
    "the manifest": beside("manifest.json"),
    "the metadata of safetensors": in_metadata,
    "a plain value": in_values,
}


@pytest.mark.parametrize("planted", PLANTED)
@pytest.mark.parametrize("form", ["pickle", "torch"])
@pytest.mark.parametrize("vouched", [False, True])
def test_pickle_is_never_read_wherever_it_lies(
    saver: Checkpointer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    planted: str,
    form: str,
    vouched: bool,
) -> None:
    sprung, source = tmp_path / "sprung", tmp_path / "evil"
    if form == "pickle":
        source.write_bytes(pickle.dumps(Trap(sprung)))
    else:
        torch.save(Trap(sprung), source)
    folder = saver.folder / NEW
    PLANTED[planted](folder, source.read_bytes())
    if vouched and planted != "the manifest":
        files = [p for p in folder.rglob("*") if p.is_file()]
        if not any(p.parent != folder for p in files):
            forge(folder)

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("something is unpickled")

    for name in ("load", "loads", "Unpickler", "_Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    monkeypatch.setattr(torch, "load", refuse)
    target = state(0)
    loaded = saver.load([NEW, OLD], target)
    assert loaded is not None
    assert str(target["model"]) == str(state(loaded.step)["model"])
    for use in (
        lambda: verify_folder(folder),
        lambda: read_files(folder),
        lambda: verified(folder, "job"),
        lambda: export(folder, tmp_path / "model"),
        lambda: scan(saver.folder),
    ):
        try:
            use()
        except CheckpointError:
            continue
    retire(saver.folder, CheckpointSpec(keep_latest=1))
    assert not sprung.exists()
