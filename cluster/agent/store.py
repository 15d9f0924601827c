"""The process in which the rendezvous store of an attempt lives."""

import importlib
import os
import sys

from trainhall.cluster.agent import claims, meeting, processes, ranks
from trainhall.training.link import AttemptFolder

MODULE = "trainhall.training.rendezvous"


def start(folder: AttemptFolder, address: str, *, fork: bool) -> tuple[int, int]:
    """Listen at an address, so that ranks can start at once, and have a child serve who connects.

    Args:
        fork: serve in a copy of this process, which has torch imported.

    Returns:
        The child's pid, and the port.

    Raises:
        OSError: the address has no meaning here, or no port is free.
    """
    listener = meeting.listen(address)
    fd, port = listener.fileno(), int(listener.getsockname()[1])
    log = claims.log_path(folder)
    arguments = [sys.executable, "-m", MODULE, address, str(fd)]
    env = dict(os.environ) | {processes.MARK: str(folder.path)}

    def work() -> int:
        if not fork:
            os.set_inheritable(fd, True)
            os.execve(arguments[0], arguments, env)
        ranks.ignore_what_python_ignores()
        return int(importlib.import_module(MODULE).hold(address, fd))

    with listener:
        pid = ranks.fork_child("rendezvous", (log, log), env, folder.path, work, keep=(fd,))
    return pid, port
