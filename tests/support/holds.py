"""Jobs that do not end before their test lets them, however slow the machine is."""

import os
from pathlib import Path
from typing import Any

TESTS = str(Path(__file__).parents[1])
"""Where their tasks are imported from: the code of a job, or on the PYTHONPATH of its ranks."""
STEPS = 200
"""Of a job that is held."""


def with_tests() -> dict[str, str]:
    """This process's environment, of a process that shall find the tests' own modules."""
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), TESTS]))
    return {**os.environ, "PYTHONPATH": path}


class Gate:
    """A file that jobs wait for, and the specs of those that do."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> None:
        """Let them go: from now on they are as fast as they can be."""
        self.path.touch()

    def task(self, name: str, *, steps: int = STEPS, **params: Any) -> dict[str, Any]:
        """The part `task` of the spec of a job of so many steps: `synthetic` or `digits`.

        Each step takes a share of the time before it, so that the first ones come quickly and all
        would take 20 minutes, which is longer than anything that is waited for.
        """
        hold = {"gate": str(self.path), "share": 10 / steps}
        return free_task(name, **params, hold=hold)


def free_task(name: str, **params: Any) -> dict[str, Any]:
    """The same task, which gives the same numbers, as fast as it can be."""
    return {"name": f"support.tasks.held:{name.capitalize()}", "params": params}
