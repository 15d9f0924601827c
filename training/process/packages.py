"""Installed packages of a rank's interpreter, read from names of folders: nothing is imported."""

import contextlib
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from trainhall.training.link.packages import MAX_PACKAGES, Packages
from trainhall.training.link.spool import EventSpool

_INTERPRETER_SECONDS = 10.0
_PYTHON = re.compile(r"python[\d.]*")
_PRINT_PATH = "import json, platform, sys; print(json.dumps([platform.python_version(), sys.path]))"
_METADATA = re.compile(
    r"(?P<name>\w[\w.]{0,127})-(?P<version>[\w.!+]{1,64})(-py\d[\w.-]*)?\.(dist|egg)-info",
    re.ASCII,
)
_DRIVER = re.compile(r"Kernel Module(?:\s+for\s+\S+)?\s+(\d[\d.]{0,30})")
_DRIVER_FILE = Path("/proc/driver/nvidia/version")
_CUDA = re.compile(r"^cuda\b[^=\n]*= '([\d.]{1,32})'", re.MULTILINE)


def report(events: EventSpool) -> None:
    """Report the packages of this process."""
    _append(events, platform.python_version(), sys.path)


def report_of(events: EventSpool, interpreter: str, env: Mapping[str, str]) -> None:
    """Report the packages that a script sees, unless its interpreter is none of Python.

    Args:
        interpreter: the program that runs it.
        env: the script's environment.
    """
    if interpreter == sys.executable:
        added = [folder for folder in env.get("PYTHONPATH", "").split(os.pathsep) if folder]
        _append(events, platform.python_version(), [*added, *sys.path])
    # Any other program might do something else with these arguments.
    elif _PYTHON.fullmatch(Path(interpreter).name):
        # Whatever is wrong with it, the script will say.
        with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
            printed = subprocess.run(
                [interpreter, "-c", _PRINT_PATH], env=dict(env), stdin=subprocess.DEVNULL,
                capture_output=True, timeout=_INTERPRETER_SECONDS, check=True,
            ).stdout  # fmt: skip
            version, path = json.loads(printed)
            _append(events, str(version), [str(folder) for folder in path])


def _append(events: EventSpool, python: str, path: Sequence[str]) -> None:
    found = sorted(installed(path).items())[:MAX_PACKAGES]
    # No odd name and no full disk stops training.
    with contextlib.suppress(OSError, ValueError):
        packages = Packages(
            python=python, os=_os(), cuda=_cuda(path), driver=_driver(), packages=dict(found)
        )
        events.append("packages", packages.model_dump())


def installed(path: Iterable[str]) -> dict[str, str]:
    """Return the versions of packages on a search path, by normalized name.

    `importlib.metadata` would open a file for each: 0.1 s for a hundred packages.
    """
    found: dict[str, str] = {}
    for folder in path:
        with contextlib.suppress(OSError):
            for match in filter(None, map(_METADATA.fullmatch, os.listdir(folder or "."))):
                name = re.sub(r"[-_.]+", "-", match["name"]).lower()
                found.setdefault(name, match["version"])  # the first on the path is imported
    return found


def _os() -> str:
    host = os.uname()
    name = host.sysname
    with contextlib.suppress(OSError):
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    return f"{name}, kernel {host.release} {host.machine}"[:256]


def _cuda(path: Iterable[str]) -> str | None:
    for folder in path:
        with contextlib.suppress(OSError):
            match = _CUDA.search(Path(folder, "torch", "version.py").read_text("utf-8", "replace"))
            return match and match[1]
    return None


def _driver() -> str | None:
    """Read the version of the NVIDIA driver from the kernel: no library is loaded for it."""
    try:
        match = _DRIVER.search(_DRIVER_FILE.read_text("utf-8", "replace"))
    except OSError:
        return None
    return match and match[1]
