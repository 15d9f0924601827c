"""A shim whose scripts run in forks that have torch imported, instead of being executed.

Importing torch is nearly all that a short script costs. That scripts are executed, and how, is
shown by the tests that use shims as they are.
"""

import importlib
import os
import runpy
import signal
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NoReturn

from support.forking.forks import end_with

from trainhall.cluster.agent.shim import script_launch
from trainhall.cluster.agent.shim.main import main as shim
from trainhall.cluster.agent.shim.rank_process import ignore_what_python_ignores

_PLACES = os.environ.get("PYTHONPATH")
_executes = script_launch._exec


def main() -> int:
    script_launch._exec = _run
    return shim()


def _run(arguments: list[str], env: Mapping[str, str]) -> NoReturn:
    """Be `python script …`, whose environment this process has already, and end as it does.

    Whatever else a job asks for is executed: other interpreters, modules, and a search path that
    does not end with the present one.
    """
    first = _first_places(env)
    if first is None or arguments[0] != sys.executable or arguments[1].startswith("-"):
        _executes(arguments, env)
    _, path, *_ = sys.argv = arguments
    del sys.argv[0]
    sys.path[:0] = [str(Path(path).parent), *first]
    if any(Path(place, "sitecustomize.py").exists() for place in first):
        importlib.import_module("sitecustomize")
    ignore_what_python_ignores()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    end_with(partial(_run_script, path))


def _run_script(path: str) -> None:
    runpy.run_path(path, run_name="__main__")


def _first_places(env: Mapping[str, str]) -> list[str] | None:
    """The places that a job puts before the present ones; None where it leaves some of these."""
    present = (_PLACES or "").split(os.pathsep)
    wanted = env.get("PYTHONPATH", "").split(os.pathsep)
    count = len(wanted) - len(present)
    return wanted[:count] if count >= 0 and wanted[count:] == present else None
