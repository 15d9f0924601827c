"""`scripts/setup.py`: what is missing is one clear line, told before anything is installed."""

import os
import pty
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """As much of a fresh checkout as the script looks at before it installs."""
    folder = tmp_path / "trainhall"
    (folder / "scripts").mkdir(parents=True)
    (folder / "dashboard").mkdir()
    for name in ("scripts/setup.py", "pyproject.toml", "dashboard/package-lock.json"):
        shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder to be the whole PATH, with git and npm that do nothing and a new enough node."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, script in {"git": "", "npm": "exit 9", "node": "echo v22.1.0"}.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return folder


def setup(checkout: Path, path: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, checkout / "scripts" / "setup.py", *arguments],
        capture_output=True, text=True, check=False, env={**os.environ, "PATH": str(path)},
    )  # fmt: skip
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.mark.processes
@pytest.mark.parametrize("name", ["git", "node", "npm"])
def test_missing_program_is_one_line(checkout: Path, programs: Path, name: str) -> None:
    (programs / name).unlink()
    code, printed = setup(checkout, programs, "run")
    assert code == 1
    assert printed.count("\n") == 1
    assert printed.startswith("trainhall: needs ")
    assert f"there is no `{name}` on the PATH" in printed
    assert not (checkout / ".venv").exists()


@pytest.mark.processes
@pytest.mark.parametrize("version", ["v18.20.4", "v20.18.0", "nonsense"])
def test_old_node_is_one_line(checkout: Path, programs: Path, version: str) -> None:
    (programs / "node").write_text(f"#!/bin/sh\necho {version}\n")
    code, printed = setup(checkout, programs, "run")
    assert code == 1
    assert printed == (
        f"trainhall: needs Node.js 20.19 or newer, and `node --version` says {version}\n"
    )


@pytest.mark.processes
def test_setup_reports_a_taken_port_first(checkout: Path, programs: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, printed = setup(checkout, programs, "run", "--port", port)
    assert code == 1
    assert printed == (
        f"trainhall: port {port} is not free (Address already in use); take another with PORT=...\n"
    )


@pytest.mark.processes
@pytest.mark.parametrize("port", ["http", "-1", "65536", ""])
def test_port_that_is_none_is_one_line(checkout: Path, programs: Path, port: str) -> None:
    code, printed = setup(checkout, programs, "run", f"--port={port}")
    assert code == 1
    assert printed == f"trainhall: PORT is a number from 0 to 65535, not {port!r}\n"


@pytest.mark.processes
def test_incomplete_checkout_is_one_line(checkout: Path, programs: Path) -> None:
    (checkout / "pyproject.toml").unlink()
    code, printed = setup(checkout, programs, "run")
    assert code == 1
    assert printed == "trainhall: pyproject.toml is missing: this is not a whole checkout\n"


@pytest.mark.processes
@pytest.mark.parametrize("terminal", [True, False])
def test_pip_shows_its_progress_to_a_person(checkout: Path, programs: Path, terminal: bool) -> None:
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@" >> called\n')
    python.chmod(0o755)
    (python.parent / "pip").touch()
    main, side = pty.openpty() if terminal else os.pipe()
    done = subprocess.run(
        [sys.executable, checkout / "scripts" / "setup.py", "run"],
        stderr=side, check=False, env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
    )  # fmt: skip
    os.close(main)
    os.close(side)
    assert done.returncode == 1  # npm, which comes next, is one that fails
    called = (checkout / "called").read_text()
    assert ("--progress-bar=on" in called) == terminal
    assert ("--quiet" in called) != terminal


@pytest.mark.processes
def test_setup_replaces_an_incomplete_environment(checkout: Path, programs: Path) -> None:
    """Ctrl-C in the first seconds leaves an interpreter without pip."""
    left = checkout / ".venv" / "bin" / "python"
    left.parent.mkdir(parents=True)
    left.symlink_to(sys.executable)
    (checkout / "pyproject.toml").write_text("no package: pip gives up at once")
    code, printed = setup(checkout, programs, "run")
    assert code == 1
    assert "Making a virtual environment" in printed
    assert "No module named pip" not in printed
    assert (left.parent / "pip").exists()


@pytest.mark.processes
def test_missing_python_is_one_line_of_make(checkout: Path) -> None:
    shutil.copy(ROOT / "Makefile", checkout / "Makefile")
    done = subprocess.run(
        ["make", "run", "PYTHON=python-of-nowhere"],
        cwd=checkout, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    first, *rest = done.stderr.splitlines()
    assert "needs Python 3.11 or newer: no 'python-of-nowhere' on the PATH" in first
    assert len(rest) == 1  # make's own line
