"""Packages of hosts that train: `pip install 'trainhall[train]'`."""

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
