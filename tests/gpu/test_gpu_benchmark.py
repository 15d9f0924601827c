"""The command that measures on a GPU works, so that it need not be mended where there is one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu.sh"


@pytest.mark.slow
def test_command_for_gpus_runs_on_a_cpu(tmp_path: Path) -> None:
    short = ["--rounds", "1", "--steps", "1", "--warm-up", "1", "--no-compile"]
    options = ["--device", "cpu", "--tiny", *short]
    done = subprocess.run(
        ["bash", SCRIPT, *options, "--output", tmp_path],
        env={**os.environ, "PYTHON": sys.executable, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NOT TESTED: torch sees no CUDA device here" in done.stdout
    (path,) = tmp_path.glob("*-cpu.json")
    document = json.loads(path.read_text())
    assert [each["case"] for each in document["results"]] == ["resnet18", "gpt2"]
    for each in document["results"]:
        assert min(each["per_second"], each["ratio"], each["checkpoint_bytes"]) > 0
        assert each["utilization"] is None
