"""Places that coordinator and commands share: the configuration file and the data folder."""

import os
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE_NAME = "trainhall.toml"


class SettingsError(ValueError):
    """The configuration cannot be read."""


@dataclass(frozen=True)
class ConfigFile:
    """Values of a configuration file, by key as it is written there."""

    path: Path
    values: dict[str, Any]


def read_file() -> ConfigFile | None:
    """Read the configuration file that counts, if there is any.

    Raises:
        SettingsError: it cannot be read, or TRAINHALL_CONFIG names a file that does not exist.
    """
    path = _find_file()
    if path is None:
        return None
    try:
        return ConfigFile(path, tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not valid TOML: {error}") from None
    except OSError as error:
        raise _unreadable(path, error) from None


def _find_file() -> Path | None:
    if named := os.environ.get("TRAINHALL_CONFIG"):
        if named == os.devnull:
            return None
        if not _is_file(Path(named)):
            raise SettingsError(f"TRAINHALL_CONFIG names {named}, which is not a file")
        return Path(named)
    base = os.environ.get("XDG_CONFIG_HOME")
    home = Path(base) if base else Path.home() / ".config"
    candidates = (Path(FILE_NAME), home / "trainhall" / FILE_NAME)
    return next((path for path in candidates if _is_file(path)), None)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:  # its folder may not be entered
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> SettingsError:
    return SettingsError(
        f"{path} cannot be read: {error.strerror}; make it readable, or set TRAINHALL_CONFIG to "
        f"another file ({os.devnull} for none)"
    )


def user_data_dir() -> Path:
    """Return the folder for this user's application data, by the convention of the system."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "trainhall"
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "trainhall"
