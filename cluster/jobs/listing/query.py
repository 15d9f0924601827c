"""Parser of the query language of job lists.

query   = { term }                        every term must match
term    = [ "-" ] ( field operator values | text )
field   = text                            step, parameters.lr, "metrics.my loss"
operator = ":" | "=" | "<" | "<=" | ">" | ">="
values  = text { "," text }               several after ":" and "=" alone: any of them
text    = word | '"' characters '"'       with backslash before a quote or backslash
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

MAX_QUERY = 1000
MAX_TERMS = 20
_OPERATORS = ":=<>"
_WORDS = {"OR": "write FIELD:a,b for any of several values", "AND": "leave it out",
          "NOT": "write -TERM"}  # fmt: skip
"""Operators of other query languages, each with the form to write here."""
_UNITS = ("s", "m", "h", "d")


class Operator(StrEnum):
    HAS = ":"
    EQUALS = "="
    LESS = "<"
    AT_MOST = "<="
    GREATER = ">"
    AT_LEAST = ">="


class QueryError(ValueError):
    """Error in a query, at a character."""

    def __init__(self, position: int, message: str) -> None:
        self.position = position
        """Index of the character, from 0; the length of the query at its end."""
        super().__init__(message)


@dataclass(frozen=True)
class Text:
    """Text of a query and its position."""

    text: str
    position: int


@dataclass(frozen=True)
class Term:
    """Part of a query that a job must match."""

    negated: bool
    field: Text | None
    """None: `values` holds one text to search for."""
    operator: Operator
    values: tuple[Text, ...]


def parse_query(query: str) -> list[Term]:
    """Split a query into its terms.

    Raises:
        QueryError: of any text that is no query.
    """
    if len(query) > MAX_QUERY:
        raise QueryError(MAX_QUERY, f"expected at most {MAX_QUERY:,} characters")
    for position, character in enumerate(query):
        if not character.isprintable() and not character.isspace():
            raise QueryError(position, "expected no control character")
    return _Parser(query).terms()


def with_caller(terms: Iterable[Term], caller: str | None) -> list[Term]:
    """Return the terms with the caller's name for the `me` of `user:me`.

    Raises:
        QueryError: of a `me` where the caller's name is not known.
    """

    def named(value: Text) -> Text:
        if value.text.lower() != "me":
            return value
        if caller is None:
            message = "the caller has no name here; name the user, as in user:maria"
            raise QueryError(value.position, message)
        return replace(value, text=caller)

    return [
        replace(term, values=tuple(map(named, term.values)))
        if term.field is not None and term.field.text == "user"
        else term
        for term in terms
    ]


class _Parser:
    def __init__(self, query: str) -> None:
        self._query = query
        self._at = 0

    def terms(self) -> list[Term]:
        found: list[Term] = []
        while self._skip_spaces():
            if len(found) == MAX_TERMS:
                raise QueryError(self._at, f"expected at most {MAX_TERMS} terms")
            start = self._at
            term = self._term()
            if self._query[start] != '"':
                _check_word(term, found[-1] if found else None)
            found.append(term)
        return found

    def _term(self) -> Term:
        negated = self._next == "-"
        if negated:
            self._at += 1
        first = self._text("a field or a word to search for", stop=_OPERATORS)
        if not self._next or self._next not in _OPERATORS:
            return Term(negated, None, Operator.HAS, (first,))
        operator = self._operator()
        return Term(negated, first, operator, self._values(f"a value after {operator}", operator))

    def _operator(self) -> Operator:
        sign = self._query[self._at]
        self._at += 1
        if sign in "<>" and self._next == "=":
            sign += "="
            self._at += 1
        return Operator(sign)

    def _values(self, expected: str, operator: Operator) -> tuple[Text, ...]:
        several = operator in (Operator.HAS, Operator.EQUALS)
        values = [self._text(expected, stop="," if several else "")]
        while several and self._next == ",":
            self._at += 1
            values.append(self._text("a value after the comma", stop=","))
        return tuple(values)

    def _text(self, expected: str, *, stop: str) -> Text:
        """Read quoted characters, or those up to a space, a quote or one of `stop`."""
        start = self._at
        if self._next == '"':
            text = Text(self._quoted(), start)
            if self._next and not self._next.isspace() and self._next not in stop:
                raise QueryError(self._at, "expected a space after the quote")
            return text
        while self._next and not self._next.isspace() and self._next not in stop + '"':
            self._at += 1
        if self._at == start:
            raise QueryError(start, f"expected {expected}")
        if self._next == '"':
            raise QueryError(self._at, "expected the quote before the first character, or a space")
        return Text(self._query[start : self._at], start)

    def _quoted(self) -> str:
        start = self._at
        self._at += 1
        characters = []
        while self._next != '"':
            if self._next == "\\" and self._query[self._at + 1 : self._at + 2] in ('"', "\\"):
                self._at += 1
            if not self._next:
                raise QueryError(start, "expected a second quote that ends the text")
            characters.append(self._next)
            self._at += 1
        self._at += 1
        if not characters:
            raise QueryError(start, "expected characters between the quotes")
        return "".join(characters)

    @property
    def _next(self) -> str:
        """The next character; empty at the end."""
        return self._query[self._at : self._at + 1]

    def _skip_spaces(self) -> bool:
        """Go to the next term; return whether there is one."""
        while self._next.isspace():
            self._at += 1
        return bool(self._next)


def _check_word(term: Term, before: Term | None) -> None:
    """Refuse words that were hardly meant as names of jobs.

    Raises:
        QueryError: it is one.
    """
    (word, *_) = term.values
    if term.field is not None or term.negated:
        return
    if word.text in _WORDS:
        advice = f"{_WORDS[word.text]}, or {word.text} in quotes for the text"
        raise QueryError(word.position, f"all terms must match; {advice}")
    if before is None or before.field is None or before.field.text != "duration":
        return
    if word.text in _UNITS:
        joined = f"duration{before.operator}{before.values[-1].text}{word.text}"
        raise QueryError(word.position, f"expected no space before the unit; write {joined}")
