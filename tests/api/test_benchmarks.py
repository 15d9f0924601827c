"""The coordinator's benchmarks speak its protocol: run short, they measure."""

import pytest
from support.forking import forks

SHORT = {
    "ingest": ["--seconds", "0.1", "--rounds", "1", "--connections", "2"],
    "viewers": ["--viewers", "2", "--frames", "5", "--seconds", "1", "--rounds", "1"],
}


@pytest.mark.processes
@pytest.mark.parametrize("name", SHORT)
def test_benchmark_of_the_coordinator_measures(name: str) -> None:
    # What it starts is executed.
    done = forks.run(f"benchmarks.coordinator.{name}:main", SHORT[name])
    assert done.returncode == 0, done.stderr
    assert "(goal " in done.stdout
