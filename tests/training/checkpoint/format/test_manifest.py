"""Any damage is found, newer formats are refused, and no path points outside the folder."""

import hashlib
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import share_of
from support.storage.checkpoint_writer import write

from trainhall.training.checkpoint.format.errors import BadCheckpointError
from trainhall.training.checkpoint.format.manifest import (
    FileRecord,
    Manifest,
    decode_manifest,
    divide,
    encode_manifest,
    read_manifest,
    verify_folder,
)

NAME = "step-00000007-a1-g1"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    write(tmp_path, 1, 7)
    return tmp_path / NAME


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    write(folder, 1, 7)
    return folder / NAME


def seal(fields: Any) -> bytes:
    """A manifest that its own hash vouches for, whatever it says."""
    body = b'"manifest":' + json.dumps(fields).encode() + b"}\n"
    return b'{"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'",\n' + body


def fields_of(folder: Path) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads((folder / "manifest.json").read_bytes())["manifest"]
    return fields


def test_good_checkpoint_has_no_problems(good: Path) -> None:
    assert verify_folder(good) == []
    assert read_manifest(good).step == 7


@settings(max_examples=share_of(400))
@given(data=st.data())
def test_every_flipped_bit_and_every_truncation_is_found(good: Path, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(good.iterdir())))
    original = path.read_bytes()
    at = data.draw(st.integers(0, len(original) - 1))
    if data.draw(st.booleans()):
        damaged = bytearray(original)
        damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    else:
        damaged = bytearray(original[:at])
    path.write_bytes(damaged)
    try:
        problems = verify_folder(good)
    finally:
        path.write_bytes(original)
    assert [problem.path for problem in problems] == [path.name]


def test_each_problem_names_file_expected_and_found(checkpoint: Path) -> None:
    (checkpoint / "tensors-0.safetensors").unlink()
    with (checkpoint / "tensors-1.safetensors").open("ab") as file:
        file.write(b"x")
    assert [str(problem) for problem in verify_folder(checkpoint)] == [
        "tensors-0.safetensors: expected a file of 5003 bytes, found no such file",
        "tensors-1.safetensors: expected 5003 bytes, found 5004 bytes",
    ]


def test_missing_manifest_is_reported(tmp_path: Path, checkpoint: Path) -> None:
    assert [str(p) for p in verify_folder(tmp_path / "gone")] == [
        "the folder: expected a folder, found nothing"
    ]
    assert [str(p) for p in verify_folder(tmp_path / ("x" * 300))] == [
        "manifest.json: expected a manifest, found File name too long"
    ]
    (checkpoint / "manifest.json").unlink()
    assert [str(p) for p in verify_folder(checkpoint)] == [
        "manifest.json: expected a manifest, found no such file"
    ]


def test_renamed_checkpoint_is_detected(checkpoint: Path) -> None:
    moved = checkpoint.rename(checkpoint.with_name("step-00000009-a1-g1"))
    assert [str(p) for p in verify_folder(moved)] == [
        f"manifest.json: expected the manifest of step-00000009-a1-g1, found that of {NAME}"
    ]
    assert verify_folder(moved.rename(moved.with_name("a copy kept aside"))) == []


def test_newer_format_is_refused(checkpoint: Path) -> None:
    newer = {"format_version": 2, "files": {"of": "another form"}}
    (checkpoint / "manifest.json").write_bytes(seal(newer))
    assert [str(p) for p in verify_folder(checkpoint)] == [
        "manifest.json: expected format version 1 or older, found version 2, written by a newer "
        "Trainhall; upgrade this one to read it"
    ]


@pytest.mark.parametrize(
    "path",
    [
        "../outside",
        "/etc/hostname",
        "a/../../outside",
        "./a",
        "a//b",
        "a/",
        "..",
        ".",
        "",
        "a\\b",
        "a\0b",
        "a\nb",
        "manifest.json",
    ],
)
def test_paths_that_could_leave_the_folder_are_refused(checkpoint: Path, path: str) -> None:
    (checkpoint.parent / "outside").write_bytes(b"")
    fields = fields_of(checkpoint)
    fields["files"].append({"path": path, "size": 0, "sha256": hashlib.sha256().hexdigest()})
    (checkpoint / "manifest.json").write_bytes(seal(fields))
    problems = verify_folder(checkpoint)
    assert [problem.path for problem in problems] == ["manifest.json"]


@given(st.text(max_size=30))
def test_listed_path_stays_within_the_folder(path: str) -> None:
    try:
        decode_manifest(
            seal(
                {
                    "format_version": 1,
                    "job_id": "job",
                    "attempt": 1,
                    "generation": 1,
                    "step": 1,
                    "created_at": "",
                    "world_size": 1,
                    "files": [{"path": path, "size": 0, "sha256": "0" * 64}],
                }
            )
        )
    except BadCheckpointError:
        return
    inside = Path("/folder")
    assert inside in Path(os.path.normpath(inside / path)).parents


@pytest.mark.parametrize("kind", ["link", "folder link", "fifo", "folder"])
def test_only_regular_files_are_read(checkpoint: Path, kind: str) -> None:
    fields = fields_of(checkpoint)
    path = checkpoint / "tensors-0.safetensors"
    outside = path.rename(checkpoint.parent / "outside")
    match kind:
        case "link":
            path.symlink_to(outside)
        case "folder link":
            (checkpoint / "sub").symlink_to(checkpoint.parent)
            fields["files"][0]["path"] = "sub/outside"
            (checkpoint / "manifest.json").write_bytes(seal(fields))
        case "fifo":
            os.mkfifo(path)
        case _:
            path.mkdir()
    problems = verify_folder(checkpoint)
    assert [problem.path for problem in problems] == [fields["files"][0]["path"]]


class Trap:
    """Unpickling it leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def test_pickled_manifest_is_not_opened(checkpoint: Path) -> None:
    sprung = checkpoint.parent / "sprung"
    (checkpoint / "manifest.json").write_bytes(pickle.dumps(Trap(sprung)))
    assert len(verify_folder(checkpoint)) == 1
    assert not sprung.exists()


@pytest.mark.parametrize(
    "fields", [None, [], 3, {}, {"format_version": 1}, {"format_version": "2"}]
)
def test_malformed_manifest_is_refused(fields: Any) -> None:
    with pytest.raises(BadCheckpointError, match=r"manifest\.json"):
        decode_manifest(seal(fields))


def test_file_listed_twice_is_refused(checkpoint: Path) -> None:
    fields = fields_of(checkpoint)
    fields["files"].append(fields["files"][0])
    (checkpoint / "manifest.json").write_bytes(seal(fields))
    assert "is listed twice" in str(verify_folder(checkpoint)[0])


def test_unknown_manifest_fields_are_ignored(checkpoint: Path) -> None:
    (checkpoint / "manifest.json").write_bytes(seal({**fields_of(checkpoint), "new": 1}))
    assert verify_folder(checkpoint) == []


def test_manifest_round_trip_is_exact(good: Path) -> None:
    manifest = read_manifest(good)
    assert decode_manifest(encode_manifest(manifest)) == manifest
    assert isinstance(manifest, Manifest)


@pytest.mark.processes
def test_verifying_needs_no_torch() -> None:
    code = (
        "import sys\n"
        "import trainhall.training.checkpoint.format.removal\n"
        "import trainhall.training.checkpoint.format.manifest\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@given(st.lists(st.integers(0, 1000)), st.integers(1, 9))
def test_work_of_hashing_is_divided_evenly(sizes: list[int], parts: int) -> None:
    files = [
        FileRecord(path=f"{i}.bin", size=size, sha256="0" * 64) for i, size in enumerate(sizes)
    ]
    divided = divide(files, parts)
    assert len(divided) == parts
    assert sorted(f.path for part in divided for f in part) == sorted(f.path for f in files)
    sums = [sum(f.size for f in part) for part in divided]
    assert max(sums) - min(sums) <= max(sizes, default=0)
