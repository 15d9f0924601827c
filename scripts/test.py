"""All tests: the dashboard's and Python's. The last lines say what came of it."""

import sys

from steps import Step, run_all

STEPS = [
    Step("the dashboard's tests", ["npm", "test", "--silent"], "dashboard"),
    Step("the Python tests", [sys.executable, "-m", "pytest", "-q"]),
]

if __name__ == "__main__":
    sys.exit(1 if run_all(STEPS) else 0)
