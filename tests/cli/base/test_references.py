"""What commands say of folders, files and ids that lead to nothing."""

from pathlib import Path

import pytest
from support.ports import reserve
from typer.testing import CliRunner

from trainhall.cli.base.errors import CliError
from trainhall.cli.main import app

FOLDER_OR_ID = [
    ("ckpt", "verify", "{}"),
    ("ckpt", "export", "{}", "model.safetensors"),
    ("verify", "--compare", "{}", "{}"),
    ("sample", "{}"),
]


def refused(command: tuple[str, ...], reference: str) -> CliError:
    """What is said; no coordinator is there to be asked."""
    url = f"http://127.0.0.1:{reserve(refused)}"
    arguments = [part.format(reference) for part in command]
    done = CliRunner().invoke(app, arguments, env={"TRAINHALL_URL": url})
    assert isinstance(done.exception, CliError), done.output
    return done.exception


@pytest.mark.parametrize("command", FOLDER_OR_ID)
def test_missing_folder_is_called_one(command: tuple[str, ...], tmp_path: Path) -> None:
    error = refused(command, str(tmp_path / "out"))
    assert error.message.startswith(f"there is no folder {tmp_path / 'out'}; give ")
    where = "`trainhall run`" if command[0] in ("verify", "sample") else "`trainhall ckpt ls JOB`"
    assert where in error.message
    assert error.exit_code == 2


@pytest.mark.parametrize("command", FOLDER_OR_ID)
def test_reference_distinguishes_file_from_folder(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    error = refused(command, str(tmp_path / "file"))
    assert error.message.startswith(f"{tmp_path / 'file'} is a file; give ")
    assert error.exit_code == 2


@pytest.mark.parametrize("command", FOLDER_OR_ID)
def test_unknown_id_suggests_a_folder(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = refused(command, "out")
    assert "no coordinator answers" in error.message
    assert error.details == ["out was read as an id: this host has no folder of that name."]
    assert error.exit_code == 4


def test_folder_without_a_manifest_is_no_checkpoint(tmp_path: Path) -> None:
    error = refused(("ckpt", "verify", "{}"), str(tmp_path))
    assert error.message == f"{tmp_path} is not a checkpoint: it has no manifest.json"
    assert error.details == []
    inner = tmp_path / "checkpoints" / "step-00000001-a1-g1"
    inner.mkdir(parents=True)
    (inner / "manifest.json").write_text("{}")
    error = refused(("ckpt", "verify", "{}"), str(tmp_path))
    assert error.details == [f"There is a checkpoint in it: {inner}"]
    assert error.exit_code == 1


def test_failed_export_suggests_a_remedy(tmp_path: Path) -> None:
    there = tmp_path / "model.safetensors"
    there.write_text("")
    error = refused(("ckpt", "export", "{}", str(there)), "91bc")
    assert error.message == (
        f"{there} already exists and is not overwritten; choose another name, or remove it"
    )
    gone = tmp_path / "no" / "model.safetensors"
    error = refused(("ckpt", "export", "{}", str(gone)), "91bc")
    assert error.message == f"{gone} is in a folder that does not exist; create it first"


@pytest.mark.parametrize("command", [("ckpt", "ls", "{}"), ("ckpt", "gc", "{}")])
def test_folder_is_no_job(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    message = (
        "out is a folder, but `trainhall ckpt {}` takes a job of the coordinator; for a folder use "
        "`trainhall ckpt export out FILE`, or `trainhall ckpt verify` on a checkpoint's"
    )
    assert refused(command, "out").details == [message.format(command[1])]
    assert refused(command, "other").details == []
