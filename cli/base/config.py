"""Defaults from `trainhall.toml`: flags beat environment variables, which beat this file.

The file that TRAINHALL_CONFIG names is read, else the one in the current folder, else
`~/.config/trainhall/trainhall.toml`; `TRAINHALL_CONFIG=/dev/null` reads none:

    url = "http://lab:8000"          # for every command that has the option
    [server]                         # for one command
    port = 9000
    data-dir = "/srv/trainhall"
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from trainhall.api.host.config_file import ConfigFile, SettingsError, read_file
from trainhall.cli.base.errors import UsageError

DEFAULT_URL = "http://127.0.0.1:8000"
CA_VARIABLE = "TRAINHALL_TLS_CA"
# Only what is the same from one call to the next belongs in a file.
SHARED = (
    "url", "data_dir", "database_url", "host", "port", "insecure", "slots", "output", "tls_cert",
    "tls_key", "tls_self_signed", "tls_ca", "forward_domain",
)  # fmt: skip
# The coordinator itself reads these (`trainhall.api.settings`); they have no flag.
SERVER_ONLY = (
    "allowed_hosts", "auth", "mock_auth", "public_url", "access_log", "log_level", "suspect_after",
    "lost_after", "connections_per_address", "head_seconds", "body_seconds", "viewers_per_user",
    "uploads_per_user", "queued_jobs_per_user", "log_bytes_per_job",
    "output_file_bytes", "output_bytes_per_job", "allow_exec", "exec_idle", "exec_per_user",
    "secrets_key_file",
    "quotas", "preemption", "priority_ageing", "grow_after", "grow_by_restart_after",
    "alerts_private_targets", "smtp_url", "mail_from", "price_gpu_hour", "price_cpu_hour",
    "price_kwh", "currency", "public_ca", "trusted_proxies", "audit_days", "oidc", "projects",
)  # fmt: skip
OF_ONE_COMMAND = ("coordinator", "address", "pass_env", "run_as", "job_memory")


class Command(Protocol):
    """As much of Typer's commands and groups as matters here."""

    @property
    def params(self) -> Sequence[Any]: ...


def coordinator_url() -> str:
    """Return the coordinator's URL for commands without `--url`.

    Raises:
        UsageError: the file cannot be read.
    """
    if url := os.environ.get("TRAINHALL_URL"):
        return url
    file = _read_file()
    return str(file.values.get("url", DEFAULT_URL)) if file is not None else DEFAULT_URL


def tls_ca() -> str | None:
    """Return what the coordinator's certificate is verified with, where it was said.

    Raises:
        UsageError: the file cannot be read.
    """
    if given := os.environ.get(CA_VARIABLE):
        return given
    file = _read_file()
    found = file.values.get("tls_ca", file.values.get("tls-ca")) if file is not None else None
    return str(found) if found is not None else None


def server_has_tls() -> bool:
    """Return whether the file's table of the coordinator names a certificate, or asks for one.

    Raises:
        UsageError: the file cannot be read.
    """
    file = _read_file()
    own = file.values.get("server", {}) if file is not None else {}
    return isinstance(own, dict) and any(key.replace("-", "_").startswith("tls_") for key in own)


def default_map(root: Command) -> dict[str, Any]:
    """Return defaults for the commands below `root`, in the shape that click takes.

    Raises:
        UsageError: the file cannot be read or has a key that no command knows.
    """
    file = _read_file()
    if file is None:
        return {}
    path = file.path
    commands = _below(root)
    shared: dict[str, Any] = {}
    own: dict[str, dict[str, Any]] = {}
    for key, value in file.values.items():
        name = key.replace("-", "_")
        if isinstance(value, dict):
            own[key] = _table(path, key, value, commands)
        elif name in SHARED:
            shared[name] = value
        elif name in SERVER_ONLY:
            continue
        else:
            known = ", ".join([*SHARED, *(f"[{command}]" for command in _with_table(commands))])
            raise UsageError(f"{path}: unknown key {key!r}; known: {known}")
    if "doctor" in commands:
        # It checks the settings that the coordinator of this host is started with.
        coordinator = own.get("server", {}) | own.get("up", {})
        options = _names(commands["doctor"])
        seen = {key: value for key, value in coordinator.items() if key in options}
        own["doctor"] = seen | own.get("doctor", {})
    return _defaults(commands, shared, own)


def _read_file() -> ConfigFile | None:
    try:
        return read_file()
    except SettingsError as error:
        raise UsageError(str(error)) from None


def _defaults(
    commands: Mapping[str, Command], shared: dict[str, Any], own: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, command in commands.items():
        if inner := _below(command):
            result[name] = _defaults(inner, shared, {})
        else:
            mine = {key: shared[key] for key in _names(command) if key in shared}
            result[name] = mine | own.get(name, {})
    return result


def _below(command: Command) -> Mapping[str, Command]:
    found: Mapping[str, Command] = getattr(command, "commands", {})
    return found


def _names(command: Command) -> list[str]:
    """Return the options of a command that a file may give."""
    return [p.name for p in command.params if p.name in (*SHARED, *OF_ONE_COMMAND)]


def _with_table(commands: Mapping[str, Command]) -> list[str]:
    return [
        name
        for name, command in commands.items()
        if not _below(command) and not getattr(command, "hidden", False) and _names(command)
    ]


def _table(
    path: Path, name: str, values: dict[str, Any], commands: Mapping[str, Command]
) -> dict[str, Any]:
    tables = _with_table(commands)
    if name not in tables:
        raise UsageError(f"{path}: unknown table [{name}]; known: {', '.join(tables)}")
    known = [*_names(commands[name]), *(SERVER_ONLY if name == "server" else ())]
    named = {key.replace("-", "_"): value for key, value in values.items()}
    for key in named:
        if key not in known:
            raise UsageError(f"{path}: [{name}] has no key {key!r}; known: {', '.join(known)}")
    return named
