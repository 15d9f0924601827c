"""Identifiers use the field's words: the private ones that stood for them do not come back."""

import ast
import re
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


@pytest.mark.processes
def test_identifiers_use_the_words_of_the_field() -> None:
    found = {}
    for path in tracked():
        if path.suffix != ".py" or not path.is_file():
            continue
        file = str(path.relative_to(ROOT))
        names = {name for name in _identifiers(path) if _WORD.search(_snake(name))}
        names -= ALLOWED.get(file, set())
        if names:
            found[file] = sorted(names)
    assert not found, f"see `BANNED` for what to write instead: {found}"


def _identifiers(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                # A test's name is a sentence.
                names |= set() if name.startswith("test_") else {name}
            case ast.ClassDef(name=name) | ast.arg(arg=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                names.add(name)
    return names


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
