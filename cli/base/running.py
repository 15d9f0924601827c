"""The coordinator that runs on this host: what its command line says of it."""

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from trainhall.api.guard import is_loopback
from trainhall.cli.base.config import DEFAULT_URL

DEFAULT_PORT = str(urlsplit(DEFAULT_URL).port)


def data_dir_of(url: str) -> Path | None:
    """Return the data folder of the coordinator at a URL, if it runs here as this user."""
    try:
        address = urlsplit(url)
        wanted = address.port
    except ValueError:
        return None
    if not is_loopback(address.hostname or ""):
        return None
    for process in psutil.process_iter():
        try:
            options = server_options(process.cmdline())
            if options is None:
                continue
            env = process.environ()
            port = options.get("--port") or env.get("TRAINHALL_PORT") or DEFAULT_PORT
            folder = options.get("--data-dir") or env.get("TRAINHALL_DATA_DIR")
            if folder and port == str(wanted):
                return Path(os.path.normpath(Path(process.cwd(), folder)))
        except psutil.Error:
            # It has ended, or is another user's.
            continue
    return None


def server_options(arguments: Sequence[str]) -> dict[str, str] | None:
    """Parse a process's arguments as `trainhall server` options; None: another process."""
    for i, argument in enumerate(arguments[:-1]):
        program = os.path.basename(argument) in ("trainhall", "trainhall.cli.main")
        if program and arguments[i + 1] == "server":
            split = [part for each in arguments[i + 2 :] for part in each.split("=", 1)]
            return {name: value for name, value in pairwise(split) if name.startswith("--")}
    return None
