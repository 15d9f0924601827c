"""Images: fetched, pinned by their digest, and asked for their Python."""

import asyncio
import json
import re
import secrets
from dataclasses import dataclass
from typing import Any

from trainhall.cluster.agent.containers.engine import Engine, EngineError, mount_options

_PROBE = """
import json, platform, site, sys
print(json.dumps([sys.executable, platform.python_version(), site.getsitepackages()[0]]))
"""
_PROBE_SECONDS, _END_SECONDS = 120.0, 30.0
"""Time limit of a probe, and for the engine to end it."""
_PULL_SECONDS = 2 * 3600.0
_NOT_FOUND = (125, 126, 127)
"""Exit codes of an engine that cannot start a program."""


@dataclass(frozen=True)
class Image:
    pinned: str
    """Reference with its digest, or its id."""
    python: str
    """Path of its interpreter, inside."""
    python_version: str
    packages: str
    """Path of its site-packages, inside."""

    @property
    def minor_version(self) -> str:
        """Return the version of its Python, such as 3.12."""
        return ".".join(self.python_version.split(".")[:2])


async def fetch(engine: Engine, reference: str) -> str:
    """Return an image's reference with its digest, fetched first where this host lacks it.

    Raises:
        EngineError: there is none that this host may have.
    """
    try:
        found = await engine.run("image", "inspect", reference)
    except EngineError:
        if reference.startswith("localhost/"):
            raise  # Podman's name for what is on this host alone
        is_id = reference.startswith("sha256:")
        if is_id:
            raise EngineError(
                f"the image {reference} is not on this host, and it has no digest by which a "
                "registry knows it: push it to one"
            ) from None
        # Else Podman would take `dir:x` for a folder of the host.
        name = reference if engine.name == "docker" else f"docker://{reference}"
        await engine.run("pull", "--quiet", name, seconds=_PULL_SECONDS)
        found = await engine.run("image", "inspect", reference)
    return _pinned(json.loads(found)[0], reference)


def _pinned(described: dict[str, Any], reference: str) -> str:
    digests = [str(each) for each in described.get("RepoDigests") or []]
    if digests:
        # The same image may be here by the names of others, which not all hosts may pull.
        name, _, digest = reference.partition("@")
        name = re.sub(r":[^:/]*$", "", name)
        return max(
            digests,
            key=lambda each: (
                each.endswith(digest),
                f"/{each.partition('@')[0]}".endswith(f"/{name}"),
            ),
        )
    known = str(described["Id"])
    return known if known.startswith("sha256:") else f"sha256:{known}"


async def describe(engine: Engine, pinned: str, *, confined: bool) -> Image:
    """Ask an image of this host for its Python.

    Args:
        confined: as nobody, without any privilege: jobs have other users than this agent.

    Raises:
        EngineError: it has none, or cannot be run.
    """
    refused: EngineError | None = None
    for program in ("python3", "python"):
        try:
            printed = await _run(engine, confined, {}, program, pinned, _PROBE)
            path, version, packages = map(str, json.loads(printed))
            if not (path.startswith("/") and packages.startswith("/")):
                raise ValueError("a program of the image does as it likes")
            return Image(pinned, path, version, packages)
        except EngineError as error:
            if error.code not in _NOT_FOUND or not _names(program, str(error)):
                raise
            refused = error
        except (ValueError, TypeError):
            raise EngineError("its Python does not print what it is asked for") from None
    raise EngineError(
        "it has neither python3 nor python on its PATH: Trainhall starts ranks with it",
        refused.log_tail if refused is not None else "",
    )


def _names(program: str, words: str) -> bool:
    """Return whether an error is about a program that is not there."""
    return program in words and any(part in words for part in ("not found", "no such file"))


async def refusal_of_import(
    engine: Engine, image: Image, mounts: dict[str, str], module: str, *, confined: bool
) -> str | None:
    """Return why a module cannot be imported in an image; None: it can.

    Args:
        confined: as for `describe`.
        mounts: files and folders of the host, by their path inside.
    """
    try:
        await _run(engine, confined, mounts, image.python, image.pinned, f"import {module}")
    except EngineError as error:
        return str(error)
    return None


async def _run(
    engine: Engine, confined: bool, mounts: dict[str, str], python: str, image: str, code: str
) -> str:
    """Run a few lines in an image; return what they print."""
    limits = ("--timeout", f"{_PROBE_SECONDS:.0f}") if engine.name == "podman" else ()
    unprivileged = ("--user", "65534:65534", "--cap-drop", "all") if confined else ()
    name = f"trainhall-probe-{secrets.token_hex(8)}"
    try:
        async with asyncio.timeout(_PROBE_SECONDS + _END_SECONDS):
            return await engine.run(
                "run", "--rm", "--name", name, "--pull", "never", "--network", "none",
                "--log-driver", "none",
                "--security-opt", "no-new-privileges", "--security-opt", "label=disable",
                *limits, *unprivileged, *mount_options(mounts, "ro"),
                "--entrypoint", python, image, "-c", code,
            )  # fmt: skip
    except (TimeoutError, asyncio.CancelledError) as error:
        # With its command gone, it would run on.
        await engine.remove(name)
        if isinstance(error, TimeoutError):
            text = f"its Python does not answer within {_PROBE_SECONDS:.0f} s"
            raise EngineError(text) from None
        raise
