"""Run the checks of style, types and boundaries, and the tests that start no process."""

import os
import sys

import lint
from memory import run_in_memory
from steps import PROCESSORS, main, python_tests

if __name__ == "__main__":
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    lint_failed = main(__doc__, lint.STEPS, at_once=PROCESSORS)
    # Few of them wait: one worker more than there are processors.
    tests = python_tests("--no-processes", workers=PROCESSORS + 1)
    sys.exit(lint_failed or run_in_memory(lambda: main(__doc__, [tests])))
