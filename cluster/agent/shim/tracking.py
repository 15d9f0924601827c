"""MLflow's REST API for the ranks of an attempt: the socket that the shim holds, and the process
that serves it.

A job that uses no MLflow costs a socket: the process starts with the first connection. It is the
shim's child and outlives the agent, so nothing that a rank logs waits for agent or coordinator.
"""

import importlib
import os
import secrets
import socket
import time
from collections.abc import Mapping

from trainhall.cluster.agent.shim import folder_ipc, rank_process
from trainhall.training.event_log import EventLogger
from trainhall.training.link.folder import AttemptFolder, Writer, outputs_folder
from trainhall.training.link.launch import Launch

logger = EventLogger(__name__)

SERVER_MODULE = "trainhall.cluster.agent.tracking.server"
URI, RUN, TOKEN = "MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID", "MLFLOW_TRACKING_TOKEN"
_SILENT = "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"
_PROXIES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
_NO_PROXY = ("no_proxy", "NO_PROXY")
_BACKLOG = 512
_RETRY_SECONDS = 0.02


class Tracking:
    """
    Args:
        listener: listens on loopback.
        writer: name of the files for what is logged here.
    """

    def __init__(
        self, folder: AttemptFolder, launch: Launch, listener: socket.socket, writer: Writer
    ) -> None:
        self._folder = folder
        self._launch = launch
        self._listener = listener
        self._writer = writer
        self._token = secrets.token_urlsafe(24)
        self._pid: int | None = None

    @property
    def waits_for(self) -> list[int]:
        """Return the socket whose first connection starts the server; nothing while it runs."""
        return [self._listener.fileno()] if self._pid is None else []

    def variables(self, rank: int, env: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of a rank that names no tracking server of its own."""
        if URI in env:
            return {}
        address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        found = {URI: address, TOKEN: f"{self._token}.{rank}"}
        found[RUN] = env.get(RUN, self._launch.job_id)
        # The addresses that clients print are of pages that nobody serves.
        found[_SILENT] = env.get(_SILENT, "true")
        if any(env.get(name) for name in _PROXIES):
            # A proxy does not reach this host's loopback.
            spared = next((env[name] for name in _NO_PROXY if env.get(name)), "")
            if "127.0.0.1" not in spared and spared != "*":
                spared = ",".join(filter(None, [spared, "127.0.0.1"]))
            found |= dict.fromkeys(_NO_PROXY, spared)
        return found

    def serve(self) -> int | None:
        """Start the server and return its pid. A full process table lets the client wait."""
        fd, log = self._listener.fileno(), folder_ipc.log_path(self._folder)

        def work() -> int:
            rank_process.ignore_what_python_ignores()
            # Not before a job needs it: HTTP is a good part of a shim's start.
            module = importlib.import_module(SERVER_MODULE)
            outputs = outputs_folder(self._folder, self._launch)
            args = fd, self._token, self._folder, self._launch, self._writer, outputs
            return int(module.serve(*args))

        name = f"tracking {self._launch.job_id}"
        try:
            self._pid = rank_process.fork_child(
                name, (log, log), dict(os.environ), self._folder.path, work, keep=(fd,)
            )
        except BlockingIOError:
            time.sleep(_RETRY_SECONDS)
        return self._pid

    def note_ended(self, pid: int) -> None:
        """Note that a child has ended: the next connection starts another server."""
        if pid == self._pid:
            self._pid = None
            logger.warning("tracking_server_ended", job=self._launch.job_id)

    def close(self) -> None:
        """Accept no further connection."""
        self._listener.close()


def open_tracking(folder: AttemptFolder, launch: Launch) -> Tracking | None:
    """Listen for the ranks of a host; None: it has none, or no port is free."""
    if not launch.ranks or launch.trace is not None:
        return None
    writer = Writer(launch.ranks[0].rank, launch.generation)
    try:
        path = folder.tracked_metrics(writer)
        path.parent.mkdir(exist_ok=True)
        # By its name an agent finds the files, whatever generation the launch has by then.
        path.touch()
        listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
    except OSError as error:
        logger.warning("tracking_unavailable", job=launch.job_id, error=error)
        return None
    return Tracking(folder, launch, listener, writer)
