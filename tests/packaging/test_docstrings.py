"""Docstrings name arguments, exceptions and modules that exist."""

import ast
import builtins
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.tracked import ROOT, tracked

PACKAGES = ("api", "cli", "cluster", "db", "distributed", "monitoring", "parallelism", "training")
_CLASS = re.compile(r"^\s*class (\w+)", re.MULTILINE)
_NAME = re.compile(r"^\s*(?:(?:async )?def |class )?(\w+)\s*[(:=]", re.MULTILINE)
_ENTRY = re.compile(r"^    (\w+(?:, \w+)*):", re.MULTILINE)
_REFERENCE = re.compile(rf"`((?:trainhall\.)?(?:{'|'.join(PACKAGES)})(?:\.\w+)+)`")


@pytest.mark.processes
def test_docstrings_name_what_exists() -> None:
    texts = _texts()
    classes = {name for text in texts.values() for name in _CLASS.findall(text)}
    found = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path, text in texts.items()
        for line, name in _unknown_names(text, classes)
    ]
    assert not found, f"no parameter, field or exception has this name: {found}"


@pytest.mark.processes
def test_references_name_existing_modules() -> None:
    texts = _texts()
    modules: dict[str, set[str]] = {}
    for path, text in texts.items():
        *folder, module = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(folder if module == "__init__" else [*folder, module])
        modules.setdefault(name, set()).update(_NAME.findall(text))
        if folder == ["training", "spec"]:
            # `training.steps` is a field of a job spec.
            modules.setdefault("training", set()).update(_NAME.findall(text))
            modules.setdefault("parallelism", set()).update(_NAME.findall(text))
    found = [
        f"{path.relative_to(ROOT)}: {reference}"
        for path, text in texts.items()
        for reference in _REFERENCE.findall(text)
        if not _exists(reference.removeprefix("trainhall."), modules)
    ]
    assert not found, f"no module, or nothing in it, has this name: {found}"


@pytest.mark.parametrize(
    "code",
    [
        'def f(a):\n  """Do.\n\n  Args:\n      b: c.\n  """',
        'def f(a):\n  """Do.\n\n  Args:\n      a, b: c.\n  """',
        'def f(a):\n  """Do.\n\n  Raises:\n      b: c.\n  """',
        'class A:\n  """One.\n\n  Args:\n      b: c.\n  """\n  def __init__(self, a): ...',
        'class A:\n  """One.\n\n  Attributes:\n      b: c.\n  """\n  a: int',
    ],
)
def test_unknown_names_are_found(code: str) -> None:
    assert [name for _, name in _unknown_names(code, set())] == ["b"]


def _texts() -> dict[Path, str]:
    return {
        path: path.read_text(encoding="utf-8")
        for path in tracked()
        if path.suffix == ".py"
        and path.is_file()
        and path.relative_to(ROOT).parts[0] in (*PACKAGES, "src")
    }


def _unknown_names(text: str, classes: set[str]) -> Iterator[tuple[int, str]]:
    """Yield line and name of what docstrings of a file describe and does not exist."""
    nodes = list(ast.walk(ast.parse(text)))
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    imported = {alias.asname or alias.name for node in imports for alias in node.names}
    exceptions = classes | imported | set(dir(builtins))
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            known = {arg.arg for arg in ast.walk(node.args) if isinstance(arg, ast.arg)}
        elif isinstance(node, ast.ClassDef):
            known = set(_members(node))
        else:
            continue
        unknown = (_described(node, "Args") | _described(node, "Attributes")) - known
        unknown |= _described(node, "Raises") - exceptions
        yield from ((node.lineno, name) for name in sorted(unknown))


def _described(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, part: str) -> set[str]:
    _, _, text = (ast.get_docstring(node) or "").partition(f"{part}:\n")
    lines = re.match(r"(?: .*\n?)*", text)
    return (
        {name for names in _ENTRY.findall(lines[0]) for name in names.split(", ")}
        if lines
        else set()
    )


def _members(node: ast.ClassDef) -> Iterator[str]:
    for child in ast.walk(node):
        match child:
            case ast.arg(arg=name) | ast.FunctionDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def _exists(reference: str, modules: dict[str, set[str]]) -> bool:
    """Return whether a reference is a module, or a name in the longest module it begins with."""
    parts = reference.split(".")
    for end in range(len(parts), 0, -1):
        names = modules.get(".".join(parts[:end]))
        if names is not None:
            return end == len(parts) or parts[end] in names
    return False
