"""Run the checks of style, types and boundaries, and the tests that start no process."""

import os
import sys

import lint
from memory import run_in_memory
from steps import PROCESSORS, main, python_tests

# Each worker of pytest imports all tests that it is given. Those of the engine alone need torch,
# whose import takes longer than all others together, so they have processes of their own.
ENGINE = ["tests/distributed", "tests/gpu", "tests/parallelism", "tests/training"]
OTHERS = [f"--ignore={folder}" for folder in ENGINE]
TESTS = [
    python_tests("--no-processes", *OTHERS, name="the other Python tests", workers=PROCESSORS),
    python_tests(
        "--no-processes", *ENGINE, name="the engine's Python tests", workers=PROCESSORS // 2
    ),
]

if __name__ == "__main__":
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    lint_failed = main(__doc__, lint.STEPS, at_once=PROCESSORS)
    sys.exit(lint_failed or run_in_memory(lambda: main(__doc__, TESTS, at_once=len(TESTS))))
