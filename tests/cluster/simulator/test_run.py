"""Many seeds hold, and a seed is the same story every time."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from support.examples import share_of
from support.waiting import eventually

from trainhall.cluster.simulator.run import run_seed

SCRIPT = Path(__file__).parents[3] / "scripts" / "simulate.py"
SEEDS = share_of(12)
"""`make simulate` runs thousands."""
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_every_invariant_holds(part: int) -> None:
    for seed in range(part, SEEDS, PARTS):
        result = run_seed(seed)
        assert result.problem is None, (
            f"seed {seed}: {result.problem}\n"
            f"replay: .venv/bin/python scripts/simulate.py --seed {seed}"
        )
        assert result.checks, "nothing was checked"


@pytest.mark.processes
def test_seed_replays_exactly_in_any_process() -> None:
    here = [run_seed(3), run_seed(3)]
    assert here[0].story == here[1].story
    assert run_seed(4).digest != here[0].digest
    replay = subprocess.run(
        [sys.executable, str(SCRIPT), "--seed", "3"],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    *story, verdict = replay.stdout.splitlines()
    assert story == here[0].story
    assert verdict == f"seed 3: every invariant held (story {here[0].digest[:12]})"


@pytest.mark.slow
@pytest.mark.processes
def test_terminated_run_leaves_no_process() -> None:
    with subprocess.Popen(
        [sys.executable, str(SCRIPT), "--seeds", "1000", "--processes", "2"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as run:  # fmt: skip
        children = psutil.Process(run.pid).children
        eventually("its processes", lambda: len(children()) >= 3)  # one counts what they share
        started = children()
        run.terminate()
        assert run.wait(120) == 143
    _, alive = psutil.wait_procs(started, timeout=60)
    assert not alive
