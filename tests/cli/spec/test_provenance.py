"""What `trainhall submit` records of the git repository that code comes from."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from trainhall.cli.spec import provenance
from trainhall.cli.spec.provenance import git_state, with_provenance
from trainhall.training.spec.parse import validate_spec
from trainhall.training.spec.source.provenance import MAX_DIFF, GitState

TASK: dict[str, Any] = {"name": "digits", "task": {"name": "digits"}, "training": {"steps": 1}}


def git(folder: Path, *arguments: str) -> str:
    names = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    return subprocess.run(
        ["git", *names, "-C", str(folder), *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "train.py").write_text("print(1)\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


@pytest.mark.processes
def test_clean_repository_has_no_diff(repository: Path) -> None:
    git(repository, "remote", "add", "origin", "https://ada:hunter2@example.org/lab.git")
    assert git_state(repository) == {
        "commit": git(repository, "rev-parse", "HEAD"),
        "branch": "main",
        "remote": "https://example.org/lab.git",
        "dirty": False,
    }


@pytest.mark.processes
def test_diff_has_changes_and_no_secrets(repository: Path) -> None:
    (repository / ".env").write_text("A=1\n")
    git(repository, "add", ".env")
    git(repository, "commit", "-q", "-m", "second")
    (repository / ".env").write_text("A=very-secret\n")
    (repository / "train.py").write_text('print(2)\nAPI_KEY = "0123456789abc"\n')
    git(repository, "checkout", "-q", "--detach")
    state = git_state(repository) or {}
    assert "branch" not in state
    assert state["dirty"]
    assert "+print(2)" in state["diff"]
    assert '+API_KEY = "***"' in state["diff"]
    assert "secret" not in state["diff"]
    assert GitState.model_validate(state).diff == state["diff"]


@pytest.mark.processes
def test_long_diff_is_cut(repository: Path) -> None:
    (repository / "train.py").write_text("print(2)\n" * 20_000)
    state = git_state(repository) or {}
    assert (len(state["diff"]), state["diff_truncated"]) == (MAX_DIFF, True)


@pytest.mark.processes
def test_programs_of_the_repository_are_not_run(repository: Path) -> None:
    ran = repository / "ran"
    for key in ("diff.external", "core.fsmonitor", "diff.lab.textconv"):
        git(repository, "config", key, f"touch {ran}; true")
    (repository / ".gitattributes").write_text("*.py diff=lab\n")
    (repository / "train.py").write_text("print(2)\n")
    assert "+print(2)" in (git_state(repository) or {})["diff"]
    assert not ran.exists()


@pytest.mark.processes
def test_folder_without_repository_has_no_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert git_state(tmp_path) is None
    monkeypatch.setattr(provenance, "_GIT", ("no-such-program",))
    assert git_state(tmp_path) is None


def test_command_line_is_recorded_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    argv = ["/bin/trainhall", "submit", "job.yaml", "--set", "parameters.hf_token=hunter2"]
    monkeypatch.setattr("sys.argv", argv)
    document = with_provenance(TASK, validate_spec(TASK), None)
    command = ["trainhall", "submit", "job.yaml", "--set", "parameters.hf_token=***"]
    assert document["provenance"] == {"command": command}
    given = {**TASK, "provenance": {"command": ["make"]}}
    assert with_provenance(given, validate_spec(given), None) == given
