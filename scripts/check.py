"""Run the checks of style, types and boundaries, and the tests that start no process."""

import os
import sys

import lint
from steps import PROCESSORS, main, python_tests

if __name__ == "__main__":
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    tests = python_tests("--no-processes")
    sys.exit(main(__doc__, lint.STEPS, at_once=PROCESSORS) or main(__doc__, [tests]))
