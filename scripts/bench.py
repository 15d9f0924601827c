"""Runs every benchmark, one after another, so that none disturbs another."""

import sys

from steps import ROOT, Step, main

# What benchmarks share, and the peers that they compare with.
HELPERS = {
    "bare_app",
    "gpu_tasks",
    "halls",
    "paced_task",
    "report",
    "running",
    "torchrun_digits",
    "torchrun_recovery",
}
# `gpu.sh` runs it, on a machine with CUDA.
ELSEWHERE = {"gpu"}
STEPS = [
    Step(path.stem, [sys.executable, str(path)])
    for path in sorted((ROOT / "benchmarks").glob("*.py"))
    if path.stem not in HELPERS | ELSEWHERE
]

if __name__ == "__main__":
    sys.exit(main(__doc__ or "", STEPS))
