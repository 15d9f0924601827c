"""A shim whose scripts run in forks that have torch imported, instead of being executed.

Importing torch is nearly all that a short script costs. That scripts are executed, and how, is
shown by the tests that use shims as they are.
"""

import atexit
import os
import runpy
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

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

    Whatever else a job asks for is executed: other interpreters, modules, and other places to
    import from.
    """
    here = arguments[0] == sys.executable and env.get("PYTHONPATH") == _PLACES
    if not here or arguments[1].startswith("-"):
        _executes(arguments, env)
    _, path, *_ = sys.argv = arguments
    del sys.argv[0]
    sys.path.insert(0, str(Path(path).parent))
    ignore_what_python_ignores()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code: Any = 0
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        code = end.code
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    atexit._run_exitfuncs()
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)
