"""Destination of `--plot`."""

from pathlib import Path

from trainhall.cli.base.errors import UsageError
from trainhall.cli.base.extra import check_installed


def check_plot(path: Path) -> None:
    """Say what is wrong with the file before anything is computed.

    Raises:
        UsageError: nothing can be drawn there, or by this host.
    """
    check_installed("matplotlib", "--plot")
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise UsageError(f"--plot writes .png, .svg or .pdf files, not {path.name!r}")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"--plot cannot write {path}: the folder {path.parent} does not exist")
    is_new = not path.exists()
    try:
        path.open("ab").close()
        if is_new:
            path.unlink()
    except OSError as error:
        raise UsageError(f"--plot cannot write {path}: {error.strerror}") from None
