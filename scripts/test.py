"""Every check and every test. The last lines say what came of it."""

import os
import sys

import lint
from steps import ROOT, Step, main

# Many tests wait for processes that they started, so one more than there are processors.
PROCESSORS = os.cpu_count() or 1
WORKERS = min(8, PROCESSORS + 1)
# A file's tests stay together: they share a wheel, a coordinator, a browser or warm ranks. Files
# come in our order (tests/support/whole_runs.py); xdist's has those with few long tests last.
PARALLEL = ["-n", str(WORKERS), "--dist", "loadfile", "--no-loadscope-reorder"]
# Where no bytecode is written (PYTHONDONTWRITEBYTECODE), each of the hundreds of processes that
# tests start would compile all that it imports: a fifth of what a coordinator's start takes.
PACKAGES = sorted(str(path) for path in (ROOT / "src" / "trainhall").iterdir() if path.is_dir())
TYPES = 2
CHECKS = [
    *lint.STEPS[:TYPES],  # they take longest
    Step("the dashboard's tests", ["npm", "test", "--silent"], "dashboard"),
    *lint.STEPS[TYPES:],
    Step("bytecode", [sys.executable, "-m", "compileall", "-q", *PACKAGES]),
]
TESTS = [Step("the Python tests", [sys.executable, "-m", "pytest", "-q", *PARALLEL])]

if __name__ == "__main__":
    # pytest compiles all tests in every worker, 5 s of a processor, unless it finds them compiled.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.exit(main(__doc__, CHECKS, at_once=PROCESSORS) or main(__doc__, TESTS))
