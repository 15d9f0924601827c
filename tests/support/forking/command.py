"""`trainhall` in a fork that has torch imported.

What it starts by `python -m` is a fork as well: importing torch is most of what a short run costs.
In all else they are the processes that a user has, with parents, sessions, arguments and
environments of their own. Real starts are tested beside them.
"""

import inspect
import os
import signal
import subprocess
import sys
import traceback
from typing import Any, NoReturn

from support.forking.forks import become

from trainhall.cli.main import main as trainhall
from trainhall.cluster.agent.launch.warm_client import SHIM_MODULE, WARM_MODULE
from trainhall.training.spec.plan import PLANNER

_FORKED = (WARM_MODULE, SHIM_MODULE, PLANNER, "trainhall.cli.main")
_popen_executes = subprocess.Popen._execute_child  # type: ignore[attr-defined]
_parameters = inspect.signature(_popen_executes)


def main() -> Any:
    subprocess.Popen._execute_child = _fork  # type: ignore[attr-defined]
    return trainhall()


def _fork(popen: Any, *given: Any) -> None:
    """Stand for `Popen._execute_child`."""
    asked = _parameters.bind(popen, *given).arguments
    command = asked["args"]
    if not isinstance(command, list) or command[1:2] != ["-m"] or command[2] not in _FORKED:
        _popen_executes(popen, *given)
        return
    pid = os.fork()
    if pid == 0:
        _run(command[2], command[3:], asked)
    popen.pid = pid
    popen._child_created = True
    names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
    popen._close_pipe_fds(*(asked[name] for name in names))


def _run(module: str, arguments: list[str], asked: dict[str, Any]) -> NoReturn:
    """Be `python -m module`, and end."""
    code: Any = 70
    try:
        if asked["start_new_session"]:
            os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        fds = asked["p2cread"], asked["c2pwrite"], asked["errwrite"]
        env = os.environ if asked["env"] is None else asked["env"]
        code = become(f"{module}:main", arguments, fds, dict(env), asked["pass_fds"])()
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        traceback.print_exc()
    finally:
        if isinstance(code, str):
            sys.stderr.write(f"{code}\n")  # as the interpreter does
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)
