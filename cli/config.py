"""Defaults from `trainhall.toml`: flags beat environment variables, which beat this file.

The file in the current folder is read, else the one that TRAINHALL_CONFIG names, else
`~/.config/trainhall/trainhall.toml`:

    url = "http://lab:8000"          # for every command that has the option
    [server]                         # for one command
    port = 9000
    data-dir = "/srv/trainhall"
"""

import os
import sys
import tomllib
from pathlib import Path
from typing import Any

from trainhall.cli.errors import Usage

FILE_NAME = "trainhall.toml"
# Only what is the same from one call to the next belongs in a file.
SHARED = ("url", "data_dir", "database_url", "host", "port", "insecure", "slots", "output")
# The coordinator reads these by itself (`trainhall.api.settings`); they have no flag.
SERVER_ONLY = ("allowed_hosts", "public_url", "access_log", "log_level")
COMMANDS: dict[str, tuple[str, ...]] = {
    "up": ("host", "port", "data_dir", "database_url", "insecure", "slots"),
    "server": ("host", "port", "data_dir", "database_url", "insecure"),
    "agent": ("coordinator", "address", "data_dir", "slots"),
    "submit": ("url", "output"),
    "ls": ("url", "output"),
    "show": ("url", "output"),
    "logs": ("url",),
    "pause": ("url", "output"),
    "resume": ("url", "output"),
    "cancel": ("url", "output"),
    "wait": ("url",),
}
GROUPS: dict[str, dict[str, tuple[str, ...]]] = {
    "nodes": {"list": ("url", "output"), "add": ("url", "output"), "remove": ("url", "output")},
    "ckpt": {
        "ls": ("url", "output"),
        "show": ("url", "output"),
        "verify": ("url",),
        "pin": ("url", "output"),
        "unpin": ("url", "output"),
        "delete": ("url", "output"),
        "restore": ("url", "output"),
    },
}


def user_data_dir() -> Path:
    """Where this user's programs keep their data, by the habit of the system."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "trainhall"
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "trainhall"


def find_file() -> Path | None:
    """The configuration file that counts, if there is any.

    Raises:
        Usage: TRAINHALL_CONFIG names a file that does not exist.
    """
    if named := os.environ.get("TRAINHALL_CONFIG"):
        if not Path(named).is_file():
            raise Usage(f"TRAINHALL_CONFIG names {named}, which is not a file")
        return Path(named)
    base = os.environ.get("XDG_CONFIG_HOME")
    home = Path(base) if base else Path.home() / ".config"
    for path in (Path(FILE_NAME), home / "trainhall" / FILE_NAME):
        if path.is_file():
            return path
    return None


def default_map() -> dict[str, Any]:
    """Defaults by command, in the shape that click takes.

    Raises:
        Usage: the file is not TOML or has a key that no command knows.
    """
    path = find_file()
    if path is None:
        return {}
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Usage(f"{path} is not valid TOML: {error}") from None
    shared: dict[str, Any] = {}
    own: dict[str, dict[str, Any]] = {}
    for key, value in data.items():
        name = key.replace("-", "_")
        if isinstance(value, dict):
            own[key] = _table(path, key, value)
        elif name in SHARED:
            shared[name] = value
        elif name in SERVER_ONLY:
            continue
        else:
            known = ", ".join([*SHARED, *(f"[{command}]" for command in COMMANDS)])
            raise Usage(f"{path}: unknown key {key!r}; known: {known}")
    result: dict[str, Any] = {
        command: _picked(shared, names) | own.get(command, {})
        for command, names in COMMANDS.items()
    }
    for group, commands in GROUPS.items():
        result[group] = {name: _picked(shared, names) for name, names in commands.items()}
    return result


def _table(path: Path, command: str, values: dict[str, Any]) -> dict[str, Any]:
    known = COMMANDS.get(command)
    if known is None:
        raise Usage(f"{path}: unknown table [{command}]; known: {', '.join(COMMANDS)}")
    named = {key.replace("-", "_"): value for key, value in values.items()}
    for key in named:
        if key not in known and not (command == "server" and key in SERVER_ONLY):
            raise Usage(f"{path}: [{command}] has no key {key!r}; known: {', '.join(known)}")
    return named


def _picked(values: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: values[name] for name in names if name in values}
