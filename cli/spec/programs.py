"""Job specs of scripts and commands: `submit train.py -- --lr 0.1`, without a file for the spec."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainhall.cli.base.errors import UsageError
from trainhall.cli.spec.provenance import git_root

_SPECS = {".yaml", ".yml", ".json"}
_SCRIPTS = {".py", ".sh"}
_PYTHON = re.compile(r"python(3(\.\d+)?)?")
_STARTERS = {"torchrun", "accelerate", "deepspeed", "mpirun", "srun"}
"""Programs that start ranks, which Trainhall does by itself."""


def is_program(words: Sequence[str]) -> bool:
    """Return whether the words of a command line are a script or a command, and not a spec.

    Raises:
        UsageError: they are a spec, with something behind it.
    """
    first, *others = words
    if (
        first != "-"
        and Path(first).suffix not in _SPECS
        and (others or Path(first).suffix in _SCRIPTS)
    ):
        return True
    if others:
        raise UsageError(
            f"{first} is a job spec, and {others[0]!r} comes after it: a spec takes no arguments; "
            "replace its values by --set, as in --set script.args='[--lr, 0.1]'"
        )
    return False


def document_for(words: Sequence[str], here: Path) -> tuple[dict[str, Any], str]:
    """Return the spec of a script with arguments, or of a command, and why its folder was chosen.

    The folder of the code is the root of the git repository; without one, that of the script, or
    for a module the present one. It runs in the present folder, if that is part of it.

    Args:
        here: the present folder.

    Raises:
        UsageError: it is neither; or the script does not exist.
    """
    program, arguments = _program_of(words)
    if "module" in program:
        root = git_root(here)
        return _document(program["module"], program, arguments, root or here, here, root)
    path = (here / program["path"]).resolve()
    if not path.is_file():
        raise UsageError(f"there is no script {program['path']} in {here}")
    root = git_root(path.parent)
    folder = root or path.parent
    program["path"] = path.relative_to(folder).as_posix()
    return _document(path.stem, program, arguments, folder, here, root)


def document_in_git(words: Sequence[str], code: Mapping[str, str]) -> dict[str, Any]:
    """Return the spec of a script or command in a repository that hosts clone.

    Args:
        code: the `code` of the spec.

    Raises:
        UsageError: it is neither.
    """
    program, arguments = _program_of(words)
    name = program["module"] if "module" in program else Path(program["path"]).stem
    script = {**program, **({"args": list(arguments)} if arguments else {})}
    return {"name": name[:128], "code": dict(code), "script": script}


def _program_of(words: Sequence[str]) -> tuple[dict[str, str], Sequence[str]]:
    """Return the part `script` of a spec, and its arguments.

    Raises:
        UsageError: the words are neither a script nor a command with one.
    """
    first, *others = words
    if Path(first).suffix in _SCRIPTS:
        interpreter = None if Path(first).suffix == ".py" else "bash"
        return _script(interpreter, first), others
    if Path(first).name in _STARTERS:
        raise UsageError(
            f"{first} is not needed: Trainhall starts the ranks; write "
            "`trainhall submit --workers N train.py -- ARGS`"
        )
    interpreter = None if _PYTHON.fullmatch(first) else first
    if interpreter is None and others[:1] == ["-m"] and len(others) > 1:
        return {"module": others[1]}, others[2:]
    if not others:
        raise UsageError(_advice(first))
    if others[0].startswith("-"):
        raise UsageError(
            f"options of {first}, such as {others[0]}, can't be passed on; write them into a "
            "script, and submit that"
        )
    return _script(interpreter, others[0]), others[1:]


def _script(interpreter: str | None, path: str) -> dict[str, str]:
    return {"path": path, **({"interpreter": interpreter} if interpreter is not None else {})}


def _document(
    name: str,
    program: dict[str, Any],
    arguments: Sequence[str],
    folder: Path,
    here: Path,
    root: Path | None,
) -> tuple[dict[str, Any], str]:
    here = here.resolve()
    script = {**program, **({"args": list(arguments)} if arguments else {})}
    if here != folder and here.is_relative_to(folder):
        script["working_dir"] = here.relative_to(folder).as_posix()
    why = "the git repository" if root is not None else "the folder of the script"
    if root is None and "module" in program:
        why = "the current folder"
    return {"name": name[:128], "code": str(folder), "script": script}, why


def _advice(first: str) -> str:
    return (
        f"{first} is neither a job spec (.yaml, .json), nor a script (.py, .sh), nor a command "
        "with a script; write `trainhall submit job.yaml`, `trainhall submit train.py -- ARGS` or "
        "`trainhall submit -- python -m MODULE ARGS`"
    )
