"""Places that coordinator and commands share: the configuration file and the data folder."""

import os
import sys
from pathlib import Path

FILE_NAME = "trainhall.toml"


class SettingsError(ValueError):
    """The configuration cannot be read."""


def find_file() -> Path | None:
    """Return the configuration file that counts, if there is any.

    Raises:
        SettingsError: TRAINHALL_CONFIG names a file that does not exist.
    """
    if named := os.environ.get("TRAINHALL_CONFIG"):
        if named == os.devnull:
            return None
        if not Path(named).is_file():
            raise SettingsError(f"TRAINHALL_CONFIG names {named}, which is not a file")
        return Path(named)
    base = os.environ.get("XDG_CONFIG_HOME")
    home = Path(base) if base else Path.home() / ".config"
    candidates = (Path(FILE_NAME), home / "trainhall" / FILE_NAME)
    return next((path for path in candidates if path.is_file()), None)


def user_data_dir() -> Path:
    """Return the folder for this user's application data, by the convention of the system."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "trainhall"
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "trainhall"
