"""The folder of a job's code: which files go, and their way to the coordinator."""

import ast
import os
import re
import symtable
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import decode_source
from pathlib import Path
from typing import TYPE_CHECKING

from pathspec import GitIgnoreSpec

from trainhall.cli.base.errors import UsageError
from trainhall.cli.base.output import notice, size
from trainhall.cluster.wire.code_archive import (
    MAX_ARCHIVE_BYTES,
    MAX_FILES,
    ArchiveError,
    Item,
    check_link,
    check_name,
    pack,
)
from trainhall.cluster.wire.code_names import holds_entry, holds_folder, near_name

if TYPE_CHECKING:
    from trainhall.training.spec import ScriptSpec

IGNORE_FILES = (".trainhallignore", ".gitignore")
"""The first of them that the folder has at its top says what stays behind; those named `.gitignore`
count in the folders below it too."""
_NEVER = {".git", "__pycache__"}
_ENV_FILE = re.compile(r"\.env(\..+)?|\.envrc")
_ENV_EXAMPLES = (".example", ".sample", ".template", ".dist")
"""Ends of names of files that show what a file of variables looks like."""
_BINDERS = {"exec", "eval", "globals", "locals", "setattr", "vars"}
_SPACES = {"__dict__", "modules"}
"""Attributes through which a module is reached as an object: `sys.modules[__name__]`."""
_SHOWN = 5
_MEBIBYTE = 1024 * 1024


@dataclass(frozen=True)
class Packed:
    """A folder as it is sent."""

    folder: Path
    names: frozenset[str]
    """Names of files and links, relative to the folder, with `/`."""
    size: int
    """Bytes of the files; the archive is padded."""
    sha256: str
    archive: bytes
    left_out: tuple[str, ...] = ()
    """Names of `.env` files, which may hold secrets."""

    def check(self, script: "ScriptSpec") -> None:
        """See that a script's entry is among what is sent; absolute paths are the hosts' own.

        Raises:
            UsageError: `script.path` or `script.working_dir` is not.
        """
        path = script.path
        if path is not None and not Path(path).is_absolute() and not holds_entry(self.names, path):
            raise self._missing_path_error("script.path", path)
        where = script.working_dir
        if (
            where is not None
            and not Path(where).is_absolute()
            and not holds_folder(self.names, where)
        ):
            raise self._missing_path_error("script.working_dir", where)

    def check_environment(self, field: str, path: str) -> None:
        """See that what lists the job's packages is among what is sent.

        Raises:
            UsageError: the file or folder `environment.requirements` or `.project` is not.
        """
        file = path if field == "requirements" else f"{path}/pyproject.toml"
        file = os.path.normpath(file)
        if not Path(path).is_absolute() and not holds_entry(self.names, file):
            error = self._missing_path_error(f"environment.{field}", file)
            if field == "requirements" and "." not in path:
                raise UsageError(f"{error}; for a package write [{path}]")
            raise error

    def check_task(self, name: str) -> None:
        """Check that the class `package.module:Class` is in the upload, without running any of it.

        A missing module may be installed on the hosts: that is a note, and no error.

        Raises:
            UsageError: its module is sent, and has no such name.
        """
        module, _, class_name = name.partition(":")
        file = self._module_file(module)
        if file is None:
            near = get_close_matches(module, self._modules(), n=1, cutoff=0.75)
            hint = f"; did you mean {near[0]}?" if near else "."
            notice(f"Note: task.name: the job's `code` has no module {module}{hint} Every node "
                "that runs the job needs it installed.")  # fmt: skip
            return
        try:
            found = _names_of_module(decode_source((self.folder / file).read_bytes()), file)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            here = f"Python {sys.version_info.major}.{sys.version_info.minor}"
            why = str(error) or type(error).__name__
            notice(f"Note: task.name: {here} cannot read {file}: {why}")
            return
        if found is not None and class_name not in found:
            near = get_close_matches(class_name, found, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(f"task.name: {self.folder / file} has no {class_name}{hint}")

    def _module_file(self, module: str) -> str | None:
        path = module.replace(".", "/")
        # As Python looks: a folder with an __init__.py comes before a file of the same name.
        files = (f"{path}/__init__.py", f"{path}.py")
        return next(
            (
                file
                for file in files
                if holds_entry(self.names, file) and (self.folder / file).is_file()
            ),
            None,
        )

    def _modules(self) -> list[str]:
        """Return the modules that the folder's own files make."""
        files = sorted(name for name in self.names if name.endswith(".py"))
        return [f.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for f in files]

    def _missing_path_error(self, field: str, path: str) -> UsageError:
        if field == "script.path" and holds_folder(self.names, path):
            return UsageError(f"{field}: {path} is a folder without a __main__.py")
        if (self.folder / path).exists():
            ignore = next(
                (self.folder / n for n in IGNORE_FILES if (self.folder / n).is_file()), None
            )
            why = f"{ignore} excludes it" if ignore else "no file in it would be uploaded"
            return UsageError(f"{field}: {path} is in {self.folder}, the job's `code`, but {why}")
        near = near_name(self.names, path)
        hint = f"; did you mean {near}?" if near else ""
        return UsageError(f"{field}: {path} is not in {self.folder}, the job's `code`{hint}")


def _names_of_module(source: str, file: str) -> set[str] | None:
    """Return the names bound at a module's top level; None if only running it would show them.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: it is not what this Python reads.
    """
    if any(_may_bind_more(node) for node in ast.walk(ast.parse(source, file))):
        return None
    symbols = symtable.symtable(source, file, "exec").get_symbols()
    bound = {s.get_name() for s in symbols if s.is_assigned() or s.is_imported()}
    return None if "__getattr__" in bound else bound


def _may_bind_more(node: ast.AST) -> bool:
    """Return whether a statement may bind names that the module's text does not show."""
    match node:
        case ast.ImportFrom():
            return node.names[0].name == "*"
        case ast.Name():
            return node.id in _BINDERS
        case ast.Attribute():
            return node.attr in _SPACES
    return isinstance(node, ast.Global | ast.NamedExpr)


def packed(folder: Path, *, include_env: bool = False) -> Packed:
    """Pack a folder into an archive.

    Args:
        include_env: send `.env` files; else those alone that the ignore file names with `!`.

    Raises:
        UsageError: the folder, or something in it, cannot be sent; it says what, and what to do.
    """
    try:
        ignored = _Ignored.at_top(folder)
        items = list(_selected(folder, ignored))
        env = [item for item in items if is_env_file(item.name)]
        kept = [item for item in env if include_env or ignored.decision(item.name) is False]
        left_out = [item for item in env if item not in kept]
        items = [item for item in items if item not in left_out]
        _check_size(folder, items)
        with tempfile.TemporaryFile() as file:
            sha256 = pack(items, file)
            file.seek(0)
            data = file.read()
    except FileNotFoundError as error:
        raise UsageError(f"code: there is no {error.filename}") from None
    except NotADirectoryError:
        raise UsageError(f"code: {folder} is not a folder") from None
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"code: {error.filename or folder} cannot be read: {why}") from None
    except ArchiveError as error:
        raise UsageError(
            f"code: {error}; change it, or exclude it in {folder / IGNORE_FILES[0]}"
        ) from None
    if len(data) > MAX_ARCHIVE_BYTES:
        raise _too_large(folder, items)
    size = sum(item.size for item in items)
    names = frozenset(item.name for item in items)
    return Packed(folder, names, size, sha256, data, tuple(item.name for item in left_out))


def is_env_file(name: str) -> bool:
    """Return whether a file is one of variables, such as `.env` or `.env.local`."""
    last = name.rpartition("/")[2]
    return _ENV_FILE.fullmatch(last) is not None and not last.endswith(_ENV_EXAMPLES)


@dataclass(frozen=True)
class _Ignored:
    """Rules of ignore files for a folder, each with the folder that it stands in, the top first."""

    rules: tuple[tuple[str, GitIgnoreSpec], ...]
    is_nested: bool
    """True: ignore files of git further down count too."""

    @classmethod
    def at_top(cls, folder: Path) -> "_Ignored":
        own, git = (folder / name for name in IGNORE_FILES)
        is_nested = not own.is_file()
        return cls((), is_nested)._with(git if is_nested else own, "")

    def inside(self, folder: Path, below: str) -> "_Ignored":
        """Return the rules for a folder further down, which is called `below` in the archive."""
        return self._with(folder / IGNORE_FILES[1], below) if self.is_nested else self

    def _with(self, path: Path, below: str) -> "_Ignored":
        if not path.is_file():
            return self
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        try:
            rules = GitIgnoreSpec.from_lines(lines)
        except ValueError as error:
            raise UsageError(f"code: {path}: {error}; correct or remove the line") from None
        return _Ignored((*self.rules, (below, rules)), self.is_nested)

    def match(self, name: str) -> bool:
        """Return whether a name stays behind."""
        return self.decision(name) is True

    def decision(self, name: str) -> bool | None:
        """Return whether a name stays behind: as with git, the nearest file decides; None: none
        names it. A line such as `!.env` asks for a file."""
        for below, rules in reversed(self.rules):
            found = rules.check_file(name.removeprefix(below)).include
            if found is not None:
                return found
        return None


def _selected(folder: Path, ignored: _Ignored, below: str = "") -> Iterator[Item]:
    """Yield the items of a folder that are sent; as with git, nothing below an ignored folder."""
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda e: e.name)
    for entry in found:
        name = below + entry.name
        is_folder = entry.is_dir(follow_symlinks=False)
        if entry.name in _NEVER or ignored.match(name + "/" if is_folder else name):
            continue
        path = Path(entry.path)
        if is_folder:
            if not _is_no_code(path):
                yield from _selected(path, ignored.inside(path, name + "/"), name + "/")
            continue
        check_name(name)
        if entry.is_symlink():
            check_link(name, os.readlink(path))
            yield Item(name, path, 0)
        elif entry.is_file():
            yield Item(name, path, entry.stat().st_size)
        else:
            raise ArchiveError(f"{name} is a device, a pipe or a socket")


def _is_no_code(folder: Path) -> bool:
    """Return whether it is a virtual environment, or output of `trainhall run`."""
    left = (folder / "metrics.jsonl").exists() and (folder / "attempts").is_dir()
    return left or (folder / "pyvenv.cfg").exists()


def _check_size(folder: Path, items: Sequence[Item]) -> None:
    if not items:
        raise UsageError(f"code: {folder} has no file to upload")
    if len(items) > MAX_FILES:
        raise UsageError(
            f"code: {folder} has {len(items):,} files, but at most {MAX_FILES:,} can be "
            f"uploaded; {_advice(folder)}"
        )
    if sum(item.size for item in items) > MAX_ARCHIVE_BYTES:
        raise _too_large(folder, items)


def _too_large(folder: Path, items: Sequence[Item]) -> UsageError:
    total = sum(item.size for item in items)
    largest = sorted(items, key=lambda i: i.size, reverse=True)[:_SHOWN]
    return UsageError(
        f"code: {folder} has {size(total)}, but at most {MAX_ARCHIVE_BYTES // _MEBIBYTE} MiB can "
        f"be uploaded; {_advice(folder)}. The largest files:",
        [f"{size(item.size)}  {item.name}" for item in largest],
    )


def _advice(folder: Path) -> str:
    """Return how to leave files out: only the first of the ignore files counts."""
    own, git = (folder / name for name in IGNORE_FILES)
    if git.is_file() and not own.is_file():
        return (
            f"exclude what is not needed in {git}, or in a new {own.name}, which replaces "
            f"{git.name} here: begin with a copy of it"
        )
    return f"exclude what is not needed in {own}"
