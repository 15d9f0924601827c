"""Run every check and every test."""

import os
import sys

import lint
from memory import run_in_memory
from steps import PROCESSORS, ROOT, Step, main, python_tests

# Where no bytecode is written (PYTHONDONTWRITEBYTECODE), each of the hundreds of processes that
# tests start would compile all that it imports: a fifth of what a coordinator's start takes.
PACKAGES = sorted(str(path) for path in (ROOT / "src" / "trainhall").iterdir() if path.is_dir())
MYPY, *OTHERS = lint.STEPS
CHECKS = [
    MYPY,  # it takes longest
    Step("the dashboard's tests", ["npm", "test", "--silent"], "dashboard"),
    *OTHERS,
    Step("bytecode", [sys.executable, "-m", "compileall", "-q", *PACKAGES]),
]

if __name__ == "__main__":
    # pytest compiles all tests in every worker, 5 s of a processor, unless it finds them compiled.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    failed = main(__doc__, CHECKS, at_once=PROCESSORS)
    sys.exit(failed or run_in_memory(lambda: main(__doc__, [python_tests()])))
