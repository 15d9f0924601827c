"""Runs every benchmark, one after another, so that none disturbs another."""

import sys

from steps import ROOT, Step, run_all

# What benchmarks share, and the peers that they compare with.
HELPERS = {"bare_app", "halls", "report", "torchrun_digits"}
STEPS = [
    Step(path.stem, [sys.executable, str(path)])
    for path in sorted((ROOT / "benchmarks").glob("*.py"))
    if path.stem not in HELPERS
]

if __name__ == "__main__":
    sys.exit(1 if run_all(STEPS) else 0)
