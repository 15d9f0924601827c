"""Locking: from what a job asks for to exact versions with hashes, made once for all hosts."""

import asyncio
import platform
import re
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from trainhall.cluster.agent.environments import host_packages
from trainhall.cluster.agent.environments.uv import EnvironmentFailedError, Uv
from trainhall.cluster.agent.os_support import accounts
from trainhall.cluster.agent.os_support.accounts import Owner
from trainhall.cluster.wire.environment_lock import MAX_LOCK_BYTES, EnvironmentLock
from trainhall.training.spec.world.environment import EnvironmentSpec

_HEADER = re.compile(r"(?m)^# /// script\s*$\s(?P<content>(^#(| .*)$\s)+)^# ///\s*$")
"""PEP 723."""
_INDEX = re.compile(
    r"^\s*(?P<option>--(?:extra-)?index-url|-i|--find-links|-f)[\s=]+(?P<value>\S+)", re.MULTILINE
)
_NAMES = {"-i": "--index-url", "-f": "--find-links"}
_PINNED = re.compile(
    r"[A-Za-z0-9][\w.-]*(\[[\w., -]*\])?(==\S+|\s*@\s*(https?|git\+https|git\+ssh)://\S+)", re.ASCII
)
_MAX_FILE_BYTES = 4 * 2**20


@dataclass(frozen=True)
class Interpreter:
    path: Path
    version: str
    """Minor version, such as 3.12."""
    full_version: str


def host_platform() -> str:
    """Return the kind of this host, as in a lock."""
    return f"{sys.platform}-{platform.machine()}"


async def find_interpreter(uv: Uv, wanted: str | None, cwd: Path) -> Interpreter:
    """Find a Python on this host.

    Args:
        wanted: its minor version; None: the agent's.

    Raises:
        EnvironmentFailedError: there is none, and uv cannot fetch it.
    """
    if wanted in (None, host_packages.minor_version()):
        return Interpreter(
            Path(sys.executable), host_packages.minor_version(), platform.python_version()
        )
    assert wanted is not None
    try:
        printed, _ = await uv.run("python", "find", "--no-project", wanted, cwd=cwd)
    except EnvironmentFailedError as error:
        try:
            # One that uv may fetch itself, unless UV_PYTHON_DOWNLOADS forbids it.
            await uv.run("python", "install", wanted, cwd=cwd)
        except EnvironmentFailedError as refused:
            raise EnvironmentFailedError(
                f"this host has no Python {wanted}: {refused}", f"{error}\n{refused}", refused.cause
            ) from None
        printed, _ = await uv.run("python", "find", "--no-project", wanted, cwd=cwd)
    path = Path(printed.strip())
    version, _ = await uv.run("python", "find", "--no-project", "--show-version", path, cwd=cwd)
    return Interpreter(path, wanted, version.strip())


class Locking:
    """One resolution.

    Args:
        folder: for files of this work alone.
        code: the job's code; None: it has none.
        owner: as whom uv reads what the job names; None: as this process. Another user's build
            scripts are not run.
    """

    def __init__(
        self,
        uv: Uv,
        spec: EnvironmentSpec,
        folder: Path,
        code: Path | None,
        owner: Owner | None = None,
    ) -> None:
        self._uv = uv
        self._spec = spec
        self._folder = folder
        self._code = code
        self._owner = owner

    async def lock(self, interpreter: Interpreter) -> EnvironmentLock:
        """Return the lock.

        Raises:
            EnvironmentFailedError: there is no solution, or what is named cannot be used.
        """
        own = interpreter.version == host_packages.minor_version()
        torch = self._spec.torch or ("host" if own else "lock")
        if torch == "host" and not own:
            raise EnvironmentFailedError(
                f"the host's torch is for Python {host_packages.minor_version()}, and "
                f"environment.python asks for {interpreter.version}; set environment.torch to "
                "lock, or leave one of them out"
            )
        left_out = await asyncio.to_thread(host_packages.installed_torch) if torch == "host" else []
        if torch == "host" and not left_out:
            torch = "lock"  # a host without torch, on which no job can expect one
        text, options = await self._resolve(interpreter, left_out, sdk=not own)
        if len(text.encode()) > MAX_LOCK_BYTES:
            raise EnvironmentFailedError(
                f"the lock has {len(text.encode()):,} bytes; the limit is {MAX_LOCK_BYTES:,}"
            )
        return EnvironmentLock(
            python=interpreter.version, platform=host_platform(), torch=torch, requirements=text,
            options=options,
        )  # fmt: skip

    async def _resolve(
        self, interpreter: Interpreter, left_out: Sequence[str], *, sdk: bool
    ) -> tuple[str, list[str]]:
        """Return the lock's text, and the options for the indexes that the job's files name."""
        inputs: list[Path] = []
        options: list[str] = []
        cwd = self._folder
        source = self._spec.source
        if source is not None:
            path = Path(str(self._spec.source_in(str(self._code) if self._code else None)))
            cwd = path if source[0] == "project" else path.parent
            prepared, options = await self._read(source[0], path, interpreter, left_out)
            inputs.append(prepared)
        elif self._spec.requirements:
            inputs.append(self._write("requirements.in", self._spec.requirements))
        if sdk:
            needed = await asyncio.to_thread(host_packages.sdk_requirements)
            inputs.append(self._write("sdk.in", needed))
        if not inputs:
            return "", []
        # All versions are exact by then, and hashed: no index can slip in another one.
        exact = inputs[0].name == "exported.txt"
        overrides = self._write(
            "overrides.txt", [f'{n}; sys_platform == "never"' for n in left_out]
        )
        text, _ = await self._run(
            "pip", "compile", "--python", interpreter.path, "--generate-hashes", "--no-header",
            "--no-annotate", "--override", overrides, *options,
            *(("--index-strategy", "unsafe-best-match") if exact else ()),
            *inputs, cwd=cwd,
        )  # fmt: skip
        for line in text.splitlines():
            if line[:1].strip() and line[0] != "#" and not _PINNED.match(line):
                raise EnvironmentFailedError(
                    f"{line.split()[0] if line.split() else line!r} is no package of an index: a "
                    "package in a folder cannot be locked; send it with `code` and import it there"
                )
        return text, options

    async def _read(
        self, field: str, path: Path, interpreter: Interpreter, left_out: Sequence[str]
    ) -> tuple[Path, list[str]]:
        """Return the file to resolve, and the options for its indexes."""
        if field == "requirements":
            text = await self._text(path, f"environment.{field}")
            if path.suffix == ".py":
                header = _header(text, path.name)
                _check_python(header.get("requires-python"), path.name, interpreter)
                return path, _indexes(header.get("tool", {}).get("uv", {}))
            if path.name == "pyproject.toml":
                project = _parsed(text, path.name)
                _check_python(_requires(project), path.name, interpreter)
                return path, _indexes(project.get("tool", {}).get("uv", {}))
            return path, _options(text, path)
        file = path / "pyproject.toml"
        project = _parsed(await self._text(file, "environment.project"), file.name)
        _check_python(_requires(project), file.name, interpreter)
        indexes = _indexes(project.get("tool", {}).get("uv", {}))
        if not await asyncio.to_thread((path / "uv.lock").exists):
            return file, indexes
        locked = _parsed(await self._text(path / "uv.lock", "environment.project"), "uv.lock")
        _check_python(locked.get("requires-python"), "uv.lock", interpreter)
        pruned = [part for name in left_out for part in ("--prune", name)]
        exported = self._folder / "exported.txt"
        text, _ = await self._run(
            "export", "--frozen", "--no-dev", "--no-emit-workspace", "--no-header", "--no-annotate",
            "--python", interpreter.path, *pruned, cwd=path,
        )  # fmt: skip
        self._write(exported.name, [text])
        return exported, indexes

    async def _run(self, *arguments: str | Path, cwd: Path) -> tuple[str, str]:
        if self._owner is None:
            return await self._uv.run(*arguments, cwd=cwd)
        home = str(self._folder)
        uv = self._uv.with_variables(HOME=home, UV_CACHE_DIR=f"{home}/cache", UV_NO_BUILD="1")
        return await uv.run(*arguments, cwd=cwd, owner=self._owner)

    def _write(self, name: str, lines: Sequence[str]) -> Path:
        path = self._folder / name
        with accounts.acting_as(self._owner):
            path.write_text("\n".join([*lines, ""]))
        return path

    async def _text(self, path: Path, field: str) -> str:
        def read() -> str:
            with accounts.acting_as(self._owner), path.open("rb") as file:
                return file.read(_MAX_FILE_BYTES).decode(errors="replace")

        try:
            return await asyncio.to_thread(read)
        except OSError as error:
            inside = self._code is not None and self._code in path.parents
            shown = path.relative_to(self._code) if self._code and inside else path
            raise EnvironmentFailedError(
                f"{field}: {shown} cannot be read: {error.strerror}"
            ) from None


def _parsed(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise EnvironmentFailedError(f"{name} is not valid TOML: {error}") from None


def _requires(project: dict[str, Any]) -> Any:
    return project.get("project", {}).get("requires-python")


def _header(text: str, name: str) -> dict[str, Any]:
    """Return the header of a script, as PEP 723 describes it."""
    found = _HEADER.search(text)
    if found is None:
        raise EnvironmentFailedError(
            f"environment.requirements: {name} has no header with its dependencies (PEP 723: "
            "# /// script …); add one, or name a requirements file"
        )
    lines = found["content"].splitlines()
    return _parsed("\n".join(line[2:] for line in lines), f"the header of {name}")


def _check_python(wanted: Any, name: str, interpreter: Interpreter) -> None:
    """uv resolves for the Python that it is given, whatever the file says."""
    if wanted is None:
        return
    try:
        fits = SpecifierSet(str(wanted)).contains(interpreter.full_version, prereleases=True)
    except InvalidSpecifier:
        raise EnvironmentFailedError(f"{name}: requires-python is not valid: {wanted}") from None
    if not fits:
        raise EnvironmentFailedError(
            f"{name} is for another Python: it requires {wanted}, and this environment has "
            f"{interpreter.version}; set environment.python to a version that it allows"
        )


def _options(text: str, path: Path) -> list[str]:
    """Return the options of a requirements file that say where packages are."""
    return [
        part
        for found in _INDEX.finditer(text)
        for part in (
            _NAMES.get(found["option"], found["option"]),
            _checked(found["value"], path.name),
        )
    ]


def _indexes(settings: Any) -> list[str]:
    """Return the indexes of `[tool.uv]` as options."""
    options: list[str] = []
    indexes = settings.get("index", []) if isinstance(settings, dict) else []
    for index in indexes if isinstance(indexes, list) else []:
        if isinstance(index, dict) and isinstance(index.get("url"), str):
            option = "--default-index" if index.get("default") is True else "--index"
            options += [option, _checked(index["url"], "pyproject.toml")]
    return options


def _checked(place: str, name: str) -> str:
    if "://" not in place and not place.startswith("/"):
        raise EnvironmentFailedError(
            f"{name} names the folder {place}, which other hosts do not have; give a URL or an "
            "absolute path that every host has"
        )
    return place
