"""Time from submitting a job to its first step in an installed environment, and without one.

    python -m benchmarks.jobs.environment [--rounds 5]

The job is digits on two CPU ranks, as in `submit.py`. Its environment has one package, from a
folder of wheels, and is installed on the host before the first round; each job still locks its
versions. The ranks of the agent's own environment are forks of its warm parent; those of
`new process` are not: starting Python and importing torch is their part of the difference.
"""

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.jobs.cluster import cluster
from benchmarks.jobs.submit import SPEC, trainhall_seconds
from benchmarks.report import Figure, report

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.storage.wheels import add_wheel, variables

GOAL_SECONDS = 3.0
SIDES: dict[str, dict[str, Any]] = {
    "bare": {},
    "new process": {"variables": {"PYTHONHASHSEED": "0"}},
    "environment": {"requirements": ["beta"]},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    times: dict[str, list[float]] = {name: [] for name in SIDES}
    with tempfile.TemporaryDirectory(prefix="trainhall-bench-") as name:
        folder = Path(name)
        add_wheel(folder / "wheels", "beta", "1.5")
        os.environ |= variables(folder / "wheels", folder / "uv-cache")
        with cluster(folder) as api:
            for environment in SIDES.values():  # the first of each installs, or reads from the disk
                trainhall_seconds(api, {**SPEC, "environment": environment})
            print("seconds to the first step")
            print("  round" + "".join(f"{side:>13}" for side in SIDES))
            for number in range(1, options.rounds + 1):
                for side, environment in SIDES.items():
                    spec = {**SPEC, "environment": environment}
                    times[side].append(trainhall_seconds(api, spec))
                row = "".join(f"{found[-1]:13.3f}" for found in times.values())
                print(f"  {number:5}{row}", flush=True)
    bare, new, ours = (statistics.median(found) for found in times.values())
    report(
        Figure("bare start", bare, "s"),
        Figure("new process", new, "s"),
        Figure("cached environment", ours, "s"),
        Figure("more than a bare start", ours - bare, "s", at_most=GOAL_SECONDS),
        Figure("ratio to a bare start", ours / bare),
        Figure("ratio to a new process", ours / new),
    )


if __name__ == "__main__":
    main()
