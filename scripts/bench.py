"""Runs every benchmark, one after another, so that none disturbs another."""

import sys

from steps import ROOT, Step, main

# Shared code, and the peers that benchmarks compare with.
HELPERS = {
    "bare_app",
    "cluster",
    "gpu_tasks",
    "paced_task",
    "server",
    "torchrun_digits",
    "torchrun_recovery",
}
# `gpu.sh` runs one, on a machine with CUDA.
# `make integrations` the other, where MLflow is installed.
ELSEWHERE = {"gpu", "tracking"}
STEPS = [
    Step(path.stem, [sys.executable, "-m", f"benchmarks.{path.parent.name}.{path.stem}"])
    for path in sorted((ROOT / "benchmarks").glob("*/*.py"))
    if path.stem not in HELPERS | ELSEWHERE
]

if __name__ == "__main__":
    sys.exit(main(__doc__ or "", STEPS))
