"""Identifiers, test names and docstrings use the field's words and its usual form."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.tracked import ROOT, tracked

BANNED = {
    "told": "message, report, reported, acked or payload",
    "untold": "undeliverable",
    "tells?": "send, report or notify",
    "teller": "event context",
    "heard": "heartbeat, received or reported",
    "hears?": "receive",
    "deaf": "stalled",
    "anew": "again, or from scratch",
    "lacks": "missing or without",
    "storable": "sanitize_json",
    "respec": "spec changes",
    "set_aside": "quarantine",
    "aside": "quarantined",
    "step_aside": "leave_group",
    "carry_on": "resume_in_group",
    "hand_in": "flush_rows",
    "take_over": "adopt_state",
    "carried": "transferred",
    "standing": "regroup state",
    "torn": "partially copied, or cut off",
    "trusted_from": "faults_counted_from",
    "ow(e|es|ed|ing)": "pending residual",
    "in_words": "text or message",
    "judge(s|d)?": "classify or compare",
    "pulse": "step sync",
    "beat": "sync result",
    "bond": "group handle",
    "go_on": "continue, resume or retry",
    "(goes|going|went)_on": "continues, resumes or retries",
    "com(e|es|ing)_back": "reconnect",
    "came_back": "reconnected",
    "(give|gives|given|gave)_up": "abandon, release or delete",
    "held_out": "validation",
    "mak(e|es|ing)_room": "preempt, or evict",
    "in_vain": "in time out",
    "who(se|ever)": "owner",
    "nobody": "none",
    "thirst": "power factor",
    "epitaph": "final line",
    "foretold": "forecast",
    "wordless": "without message",
}
_WORD = re.compile(rf"(?:^|_)({'|'.join(BANNED)})(?:_|$)")
# Where a file's text has none of these, no identifier in it has: parsing takes long.
_HINT = re.compile("|".join(word.replace("_", "_?") for word in BANNED), re.IGNORECASE)
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
ARTICLE = re.compile(
    r"(The|An?|Every|Each|Have|This|One|As|From|Everybody|Contiguous|Records|Steps|Pieces)\b"
)
OPENING = re.compile(
    r"\s*(What|Of|Those|It|Which|Who|Whom|Whose|Whoever|Whether|Whatever|Where|How)\b"
)
"""Words that a docstring does not begin with: a verb or the noun itself comes first."""
TEST_WORDS = 9
PHRASES = re.compile(
    r"\b(go(es)?|going|went) on\b|\b(not|again) heard\b|\bheard again\b|\bsets? aside\b"
    r"|\b(made|mak(e|es|ing)) room\b|\banew\b|\blacks?\b|\bheld[ -]out\b|\btruth value\b"
    r"|\bwhole number\b|\b(un)?told\b|\btells?\b|\b(comes?|came|coming) back\b"
    r"|\bg(ive|ives|iven|ave) up\b|\bnobody\b|\bwhoever\b|\bwhat shall be\b|\bpassed by\b"
    r"|\bcomes first\b|\btook its place\b|\bin vain\b|\bfor ever\b|\b(is|are) said\b"
    r"|\bno such thing\b|\bbehind step\b|\bcannot be had\b|\bout of which\b"
    r"|\b(pulse|ow(e|es|ed)|judg\w+)\b",
    re.IGNORECASE,
)
"""Phrases of a private vocabulary that no message, reason, event or page of the product has."""
CODE_PHRASES = re.compile(
    r"\b(go(es)?|going|went) on\b|\bheard\b|\bsets? aside\b|\b(made|mak(e|es|ing)) room\b|\banew\b"
    r"|\bheld[ -]out\b|\btruth value\b|\bwhole number\b|\b(un)?told\b|\bg(ive|ives|iven|ave) up\b"
    r"|\bwhat shall be\b|\btook its place\b|\bin vain\b|\bfor ever\b|\b(is|are) said\b"
    r"|\bcannot be had\b",
    re.IGNORECASE,
)
"""Those that docstrings and comments do not have either: they have a better word in any context."""
_SPOKEN = re.compile(r"[^\s]+ [^\s]")
TEST_BANNED = re.compile(
    r"_(told|tells?|heard|anew|whoever|(goes|go|went)_on|(comes|come|came)_back|(given|gives|give)_up)"
    r"(_|$)"
)
_TEST = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)


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


@pytest.mark.parametrize(
    "code",
    [
        "try: pass\nexcept OSError as told: pass",
        "match a:\n case int() as told: pass",
        "match a:\n case [*told]: pass",
        "match a:\n case {**told}: pass",
        "import a as told",
        "from a import b as told",
        "f(told=1)",
        "a.told = 1",
    ],
)
def test_every_name_that_python_code_binds_is_seen(code: str) -> None:
    assert "told" in _names(code)


@pytest.mark.parametrize("code", ["const wasToldLast = 1;", "class TrustedFrom {}", "f(setAside)"])
def test_words_of_typescript_identifiers_are_split(code: str) -> None:
    assert any(_WORD.search(_snake(name)) for name in _typescript_identifiers(code))


def test_prose_in_typescript_is_no_identifier() -> None:
    code = """f("told", 'anew', `heard`); // owed\n/* pulse */ const a = <p>the job's</p>;"""
    assert _typescript_identifiers(code) >= {"f", "a", "job"}
    assert not any(_WORD.search(_snake(name)) for name in _typescript_identifiers(code))


@pytest.mark.processes
def test_strings_use_the_phrases_of_the_field() -> None:
    found = []
    for path in tracked():
        file = path.relative_to(ROOT).as_posix()
        if not path.is_file() or file.startswith(_GENERATED) or ".test." in file:
            continue
        if path.suffix == ".py" and file.split("/")[0] in PRODUCT:
            texts = _strings(path)
        elif path.suffix in (".ts", ".tsx") and file.startswith("dashboard/src/"):
            texts = _page_texts(path.read_text(encoding="utf-8"))
        elif path.suffix == ".md":
            texts = path.read_text(encoding="utf-8").split("\n\n")
        else:
            continue
        lines = (" ".join(text.split()) for text in texts)
        found += [f"{file}: {text}" for text in lines if PHRASES.search(text)]
    assert not found, f"say it as the field does: {found}"


@pytest.mark.processes
def test_docstrings_and_comments_use_the_phrases_of_the_field() -> None:
    found = []
    for path in _python():
        if path.relative_to(ROOT).parts[0] in PRODUCT:
            texts = [*_comments(path), *(text for _, text in _docstrings(path))]
            lines = (" ".join(text.split()) for text in texts)
            found += [
                f"{path.relative_to(ROOT)}: {text}" for text in lines if CODE_PHRASES.search(text)
            ]
    assert not found, f"say it as the field does: {found}"


@pytest.mark.parametrize(
    "code",
    [
        "const a = <p>Nobody waits</p>;",
        'const b = "made room";',
        "const c = `goes on from ${step}`;",
        "const d = <p>Nobody waits for {name}</p>;",
        "const e = <p>{name} goes on</p>;",
        "const f = <p>{name} tells {other} about it</p>;",
    ],
)
def test_page_texts_hold_what_users_read(code: str) -> None:
    assert [text for text in _page_texts(code) if PHRASES.search(text)]
    assert not [text for text in _page_texts("// nobody reads this\nf(a);") if PHRASES.search(text)]


@pytest.mark.processes
def test_test_names_are_short_and_plain() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in _python()
        if "tests" in path.parts
        for name in _TEST.findall(path.read_text(encoding="utf-8"))
        if name.count("_") > TEST_WORDS or TEST_BANNED.search(name)
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
    found += [
        f"{path.relative_to(ROOT)}:{line}"
        for path in _python()
        # The REST reference shows the docstrings of routes below their titles.
        if path.relative_to(ROOT).parts[0] in PRODUCT and "routes" not in path.parts
        for line, text in _docstrings_of_functions(path)
        if ARTICLE.match(text)
    ]
    assert not found, f"begin functions with a verb, classes and fields with the noun: {found}"


def _python() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".py" and path.is_file()]


# Of the product alone: all of them, tests and benchmarks too, would fill the memory.
@functools.cache
def _nodes(path: Path) -> list[ast.AST]:
    """Return every node of the file's tree; the tests of one file ask for it four times."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def _docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of every string that stands as a statement."""
    for node in _nodes(path):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text


def _comments(path: Path) -> list[str]:
    """Return the comments, those of one block as a whole."""
    blocks = re.findall(r"(?:^ *#.*\n)+|(?<=  )#.*", path.read_text(encoding="utf-8"), re.MULTILINE)
    return [block.replace("#", " ") for block in blocks]


def _docstrings_of_functions(path: Path) -> Iterator[tuple[int, str]]:
    for node in _nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            properties = [d for d in node.decorator_list if "property" in ast.unparse(d)]
            if not properties and (text := ast.get_docstring(node)) is not None:
                yield node.body[0].lineno, text


def _strings(path: Path) -> list[str]:
    """Return the strings with several words, f-strings as a whole, without docstrings."""
    nodes = _nodes(path)
    parts: set[ast.expr] = set()
    for node in nodes:
        match node:
            case ast.Expr(value=ast.Constant() as docstring):
                parts.add(docstring)
            case ast.JoinedStr(values=values):
                parts.update(values)
    found = []
    for node in nodes:
        match node:
            case ast.JoinedStr(values=values):
                pieces = [v.value if isinstance(v, ast.Constant) else "…" for v in values]
                found.append("".join(map(str, pieces)))
            case ast.Constant(value=str(text)) if node not in parts:
                found.append(text)
    return [text for text in found if _SPOKEN.search(text)]


def _page_texts(code: str) -> list[str]:
    """Return strings, template strings and the text between tags of a TSX file."""
    code = re.sub(r"/\*.*?\*/|(?<!:)//[^\n]*", " ", code, flags=re.DOTALL)
    strings = [m.group(0)[1:-1] for m in _NO_CODE.finditer(code) if m.group(0)[0] in '"`']
    # The lookahead leaves the delimiter to the next text, as between two interpolations.
    return strings + re.findall(r"[>}]([^<>{}]*[^\s<>{}][^<>{}]*)(?=[<{])", code)


def _identifiers(path: Path, file: str) -> set[str]:
    if path.suffix in (".ts", ".tsx", ".mjs") and not file.startswith(_GENERATED):
        return _typescript_identifiers(path.read_text(encoding="utf-8"))
    if path.suffix != ".py":
        return set()
    code = path.read_text(encoding="utf-8")
    return _names(code) if _HINT.search(code) else set()


def _typescript_identifiers(code: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_$][\w$]*", _NO_CODE.sub(" ", code)))


def _names(code: str) -> set[str]:
    names: set[str | None] = set()
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.ClassDef(name=name) | ast.arg(arg=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                names.add(name)
            case ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
                names.add(name)
            case ast.MatchMapping(rest=name) | ast.alias(asname=name) | ast.keyword(arg=name):
                names.add(name)
    return {name for name in names if name}


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|-", "_", name).lower()
