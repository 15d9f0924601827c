"""Checks a folder of data."""

from pathlib import Path

from trainhall.training.tasks.base import BadDataError


def readable_folder(root: str, param: str = "task.params.root") -> Path:
    """Return the folder that a parameter names.

    Raises:
        BadDataError: it is missing on this host, is a file, is empty, or may not be read.
    """
    path = Path(root)
    try:
        if not path.exists():
            raise BadDataError(f"{param}: there is no folder {path} on this host")
        if not path.is_dir():
            raise BadDataError(f"{param}: {path} is a file; give the folder that holds the data")
        if not any(path.iterdir()):
            raise BadDataError(f"{param}: the folder {path} is empty")
    except OSError as error:
        raise BadDataError(f"{param}: {path} can't be read: {error.strerror}") from error
    return path
