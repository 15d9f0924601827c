"""Packages of hosts that train (`pip install 'trainhall[train]'`), and programs that use them."""

import subprocess
import sys
from importlib.util import find_spec

from trainhall.cli.base.errors import CliError

_NAMES = {"torch": "PyTorch"}


def check_installed(package: str, what: str) -> None:
    """See that this host has a package that `what` needs.

    Raises:
        CliError: it has not.
    """
    if find_spec(package) is None:
        name = _NAMES.get(package, package)
        raise CliError(f"{what} needs {name}: pip install 'trainhall[train]'")


def run_module(module: str, *arguments: str, stdout: int | None = None) -> str:
    """Run a module as a program; return its output where `stdout` is a pipe.

    Raises:
        CliError: it failed, with the last lines that it wrote to stderr.
    """
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        stdout=stdout, stderr=subprocess.PIPE, text=True, errors="replace", check=False,
    )  # fmt: skip
    if done.returncode != 0:
        lines = done.stderr.splitlines() or ["the process ended without an error message"]
        raise CliError(lines[-1], lines[:-1][-20:])
    return done.stdout or ""
