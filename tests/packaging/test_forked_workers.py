"""Forked workers of pytest-xdist report what executed ones would."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.holds import with_tests

PLUGINS = ["-p", "support.no_processes", "-p", "support.whole_runs"]


@pytest.mark.processes
def test_file_that_fails_to_import_is_reported(tmp_path: Path) -> None:
    """Though the process that is forked has imported the first half of it."""
    broken = tmp_path / "test_broken.py"
    broken.write_text("def test_above() -> None: ...\n\nimport missing_module\n")
    ini = tmp_path / "pytest.ini"
    ini.write_text("[pytest]\naddopts = --import-mode=importlib\nasyncio_mode = auto\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "1", "-c", str(ini), *PLUGINS, str(broken)],
        cwd=tmp_path, env=with_tests(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    assert "No module named 'missing_module'" in done.stdout
    assert "passed" not in done.stdout
