"""Provenance of a submission: the command line, and the state of the code's git repository."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainhall.training.spec.source.masking import mask_command, mask_text

if TYPE_CHECKING:
    from trainhall.cli.spec.code import Packed
    from trainhall.training.spec import JobSpec

_GIT_SECONDS = 5.0
"""Most time for each question to git: a slow disk delays no submission for long."""
_MAX_DOCUMENT = 120 * 1024
"""Bytes of a spec that leave room below the coordinator's limit."""
_MAX_ARGUMENT = 4000
# No program of the repository's configuration is run.
_GIT = ("git", "-c", "core.fsmonitor=false", "-c", "core.quotepath=false", "--no-pager")
_SECRET_FILES = (
    ".env", ".env.*", "*.pem", "*.key", "*.p12", "id_rsa*", "id_ed25519*", ".netrc",
)  # fmt: skip
_DIFF = (
    "diff", "--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short", "HEAD", "--", ".",
    *(f":(exclude,glob)**/{name}" for name in _SECRET_FILES),
)  # fmt: skip


def with_provenance(
    document: dict[str, Any], spec: "JobSpec", code: "Packed | None"
) -> dict[str, Any]:
    """Return a document with its provenance, unless that has one; its diff is left out if the spec
    would become too long."""
    if spec.provenance is not None:
        return document
    from trainhall.training.spec.source.provenance import MAX_ARGUMENTS

    arguments = [Path(sys.argv[0]).name, *sys.argv[1:]][:MAX_ARGUMENTS]
    command = mask_command([argument.replace("\0", "")[:_MAX_ARGUMENT] for argument in arguments])
    folder = _folder_of(spec, code)
    state = git_state(folder) if folder is not None else None
    found = {"command": command, **({"git": state} if state is not None else {})}
    if state is not None and len(json.dumps({**document, "provenance": found})) > _MAX_DOCUMENT:
        found["git"] = {**state, "diff": None, "diff_truncated": True}
    return {**document, "provenance": found}


def _folder_of(spec: "JobSpec", code: "Packed | None") -> Path | None:
    """Return the folder of a job's code on this host; None if it has none here."""
    if code is not None:
        return code.folder
    if spec.code is None and spec.script is not None and spec.script.path is not None:
        folder = Path(spec.script.path).parent
        return folder if folder.is_dir() else None
    return None


def git_state(folder: Path) -> dict[str, Any] | None:
    """Return the state of the repository that a folder is in; None without one, or without git.

    Logins in the remote's URL, and what looks like a secret in the diff, are left out.
    """
    from trainhall.training.spec.source.provenance import MAX_DIFF

    commit = _ask(folder, "rev-parse", "--verify", "-q", "HEAD")
    if not commit:
        return None
    state: dict[str, Any] = {"commit": commit}
    branch = _ask(folder, "symbolic-ref", "--short", "-q", "HEAD")
    if branch:
        state["branch"] = branch
    remotes = _run(folder, "remote", limit=4096).split()
    name = "origin" if "origin" in remotes else next(iter(remotes), None)
    if name is not None and (remote := _ask(folder, "remote", "get-url", name)):
        state["remote"] = mask_text(remote)
    state["dirty"] = bool(_ask(folder, "status", "--porcelain", "--", "."))
    if state["dirty"]:
        diff = mask_text(_run(folder, *_DIFF, limit=MAX_DIFF + 1))
        state["diff"] = diff[:MAX_DIFF]
        state["diff_truncated"] = len(diff) > MAX_DIFF
    return state


def git_root(folder: Path) -> Path | None:
    """Return the root of the repository that a folder is in; None without one, or without git."""
    found = _ask(folder, "rev-parse", "--show-toplevel")
    return Path(found).resolve() if found else None


def _ask(folder: Path, *arguments: str) -> str:
    """Return the first line of git's answer; empty if there is none."""
    return _run(folder, *arguments, limit=2048).strip().partition("\n")[0][:1024]


def _run(folder: Path, *arguments: str, limit: int) -> str:
    """Return what git prints, up to a limit; empty if it fails or takes too long."""
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    try:
        process = subprocess.Popen(
            [*_GIT, "-C", str(folder), *arguments], env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except OSError:
        return ""
    alarm = threading.Timer(_GIT_SECONDS, process.kill)
    alarm.start()
    with process:
        assert process.stdout is not None
        printed = process.stdout.read(limit)
        # What is left would block it.
        is_cut = len(printed) == limit
        if is_cut:
            process.kill()
    alarm.cancel()
    return printed.decode("utf-8", "replace") if is_cut or process.returncode == 0 else ""
