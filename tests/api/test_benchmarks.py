"""The coordinator's benchmarks speak its protocol: run short, they measure."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHORT = {
    "ingest": ["--seconds", "0.1", "--rounds", "1", "--connections", "2"],
    "viewers": ["--viewers", "2", "--frames", "5", "--seconds", "1", "--rounds", "1"],
}


@pytest.mark.processes
@pytest.mark.parametrize("name", SHORT)
def test_benchmark_of_the_coordinator_measures(name: str) -> None:
    command = [sys.executable, "-m", f"benchmarks.coordinator.{name}", *SHORT[name]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "(goal " in done.stdout
