"""Identifiers, test names and docstrings use the field's words and its usual form."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.tracked import ROOT, tracked

BANNED = {
    "told": "message, report, reported, acked or payload",
    "untold": "undeliverable",
    "heard": "heartbeat, received or reported",
    "anew": "again, or from scratch",
    "storable": "sanitize_json",
    "respec": "spec changes",
    "set_aside": "quarantine",
    "step_aside": "leave_group",
    "carry_on": "resume_in_group",
    "hand_in": "flush_rows",
    "take_over": "adopt_state",
    "trusted_from": "faults_counted_from",
    "owed": "pending",
    "in_words": "text or message",
    "judged": "verdict or classified",
    "pulse": "step sync",
}
_WORD = re.compile(rf"(?:^|_)({'|'.join(BANNED)})(?:_|$)")
ALLOWED: dict[str, set[str]] = {}
"""Identifiers that may stay for now, by file."""
PRODUCT = (
    "api",
    "cli",
    "cluster",
    "db",
    "distributed",
    "monitoring",
    "parallelism",
    "training",
    "src",
)
OPENING = re.compile(
    r"\s*(What|Of|Those|It|Which|Who|Whom|Whose|Whoever|Whether|Whatever|Where|How)\b"
)
"""Words that a docstring does not begin with: a verb or the noun itself comes first."""
TEST_WORDS = 9
TEST_BANNED = re.compile(
    r"_(told|tells?|heard|anew|whoever|(goes|go|went)_on|(comes|come|came)_back|(given|gives|give)_up)"
    r"(_|$)"
)


# Comments, strings and template strings of TypeScript; a single quote may be an apostrophe in JSX.
_NO_CODE = re.compile(
    r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`""", re.S
)
_GENERATED = "dashboard/src/client/"


@pytest.mark.processes
def test_names_use_the_words_of_the_field() -> None:
    found = {}
    for path in tracked():
        if not path.is_file():
            continue
        file = path.relative_to(ROOT).as_posix()
        names = {path.name.partition(".")[0]} | _identifiers(path, file)
        banned = {name for name in names if _WORD.search(_snake(name))} - ALLOWED.get(file, set())
        if banned:
            found[file] = sorted(banned)
    assert not found, f"see `BANNED` for what to write instead: {found}"


@pytest.mark.parametrize("code", ["const wasToldLast = 1;", "class TrustedFrom {}", "f(setAside)"])
def test_words_of_typescript_identifiers_are_split(code: str) -> None:
    assert any(_WORD.search(_snake(name)) for name in _typescript_identifiers(code))


def test_prose_in_typescript_is_no_identifier() -> None:
    code = """f("told", 'anew', `heard`); // owed\n/* pulse */ const a = <p>the job's</p>;"""
    assert _typescript_identifiers(code) >= {"f", "a", "job"}
    assert not any(_WORD.search(_snake(name)) for name in _typescript_identifiers(code))


@pytest.mark.processes
def test_test_names_are_short_and_plain() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in _python()
        for name in _python_identifiers(path)
        if name.startswith("test_")
        and (name.count("_") > TEST_WORDS or TEST_BANNED.search(name))
        and "tests" in path.parts
    ]
    assert not found, f"name the unit, then its behaviour, in at most {TEST_WORDS} words: {found}"


@pytest.mark.processes
def test_docstrings_begin_with_verb_or_noun() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in _python()
        if path.relative_to(ROOT).parts[0] in PRODUCT
        for line, text in _docstrings(path)
        if OPENING.match(text)
    ]
    assert not found, f"begin functions with a verb, classes and fields with the noun: {found}"


def _python() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".py" and path.is_file()]


def _docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of every string that stands as a statement."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text


def _identifiers(path: Path, file: str) -> set[str]:
    if path.suffix in (".ts", ".tsx", ".mjs") and not file.startswith(_GENERATED):
        return _typescript_identifiers(path.read_text(encoding="utf-8"))
    return _python_identifiers(path) if path.suffix == ".py" else set()


def _typescript_identifiers(code: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_$][\w$]*", _NO_CODE.sub(" ", code)))


def _python_identifiers(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.ClassDef(name=name) | ast.arg(arg=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                names.add(name)
    return names


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|-", "_", name).lower()
