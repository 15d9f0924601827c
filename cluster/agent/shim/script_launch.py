"""A script in place of a rank's process: what is executed, where, and why it cannot be."""

import errno
import os
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from trainhall.training.link.launch import Launch
from trainhall.training.link.spool import EventSpool
from trainhall.training.process import packages
from trainhall.training.spec import ScriptSpec

# As shells leave.
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127


class ScriptStartError(Exception):
    """The script cannot be started on this host."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def execute(
    launch: Launch,
    script: ScriptSpec,
    env: Mapping[str, str],
    events: EventSpool | None = None,
) -> int:
    """Replace this process by the script; return only where it cannot be started, with a line on
    stderr that says why.

    Args:
        launch: its `code`, if any, is the present folder; without it relative paths do not occur.
        script: the launch's.
        events: of rank 0, which reports its packages.
    """
    code, own = launch.code, launch.environment.python if launch.environment else sys.executable
    try:
        path = _path(launch, script)
        interpreter = _interpreter(script, env, own)
        if path is not None:
            _check_readable(path)
        _change_folder(script, code, path)
        if events is not None:
            packages.report_of(events, interpreter, env)
        _exec(_command(interpreter, launch, script), env)
    except ScriptStartError as error:
        print(f"trainhall: {error} (on {socket.gethostname()})", file=sys.stderr)  # noqa: T201
        return error.code


def inner_command(launch: Launch, script: ScriptSpec, python: str) -> tuple[list[str], str]:
    """Return the command and the folder of a script in a container, where nothing can be checked.

    Args:
        python: the interpreter unless the script names one.
    """
    path = _path(launch, script)
    folder = launch.code or "/"
    if script.working_dir is not None:
        folder = str(Path(folder, script.working_dir))
    elif launch.code is None and path is not None:
        folder = str(path.parent)
    return _command(script.interpreter or python, launch, script), folder


def _path(launch: Launch, script: ScriptSpec) -> Path | None:
    return Path(launch.code or "/", script.path) if script.path is not None else None


def _command(interpreter: str, launch: Launch, script: ScriptSpec) -> list[str]:
    path = _path(launch, script)
    program = [str(path)] if path is not None else ["-m", script.module or ""]
    return [interpreter, *program, *launch.arguments]


def _interpreter(script: ScriptSpec, env: Mapping[str, str], own: str) -> str:
    wanted = script.interpreter
    if wanted is None or "/" in wanted:
        return wanted or own
    # The PATH is the rank's own, which the spec may have changed.
    found = shutil.which(wanted, path=env.get("PATH", os.defpath))
    if found is None:
        raise ScriptStartError(
            f"the interpreter {wanted!r} is not on the PATH; install it, or give "
            "script.interpreter as an absolute path",
            EXIT_NOT_FOUND,
        )
    return found


def _check_readable(path: Path) -> None:
    try:
        path.stat()
    except OSError as error:
        why = str(error.strerror)
        if isinstance(error, FileNotFoundError):
            why += "; send it along with `code: FOLDER`, or put it on every host"
    else:
        if os.access(path, os.R_OK):
            return
        why = os.strerror(errno.EACCES)
    raise ScriptStartError(f"the script {path} cannot be read: {why}", EXIT_NOT_FOUND)


def _change_folder(script: ScriptSpec, code: str | None, path: Path | None) -> None:
    """Go to the folder in which the script runs; the present one is right for code and modules."""
    if script.working_dir is not None:
        folder = Path(code or "/", script.working_dir)
    elif code is None and path is not None:
        folder = path.parent
    else:
        return
    try:
        os.chdir(folder)
    except OSError as error:
        raise ScriptStartError(
            f"the working folder {folder} cannot be entered: {error.strerror}", EXIT_NOT_FOUND
        ) from None


def _exec(arguments: list[str], env: Mapping[str, str]) -> NoReturn:
    try:
        os.execve(arguments[0], arguments, env)
    except OSError as error:
        raise ScriptStartError(
            f"the interpreter {arguments[0]} cannot be run: {error.strerror}", EXIT_NOT_EXECUTABLE
        ) from None
