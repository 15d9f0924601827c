"""The query language of job lists: any text is a query, or wrong at a character."""

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from trainhall.cluster.jobs.listing.query import (
    MAX_QUERY,
    MAX_TERMS,
    Operator,
    QueryError,
    Term,
    parse_query,
)


def short(term: Term) -> str:
    """Write a term with its field and values in brackets."""
    field = "" if term.field is None else f"[{term.field.text}]{term.operator}"
    return "-" * term.negated + field + ",".join(f"[{value.text}]" for value in term.values)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", []),
        ("  \t ", []),
        ("resnet", ["[resnet]"]),
        ("state:failed lr>0.01", ["[state]:[failed]", "[lr]>[0.01]"]),
        ("lr>=1e-3 lr<=1 lr=2 step<3", ["[lr]>=[1e-3]", "[lr]<=[1]", "[lr]=[2]", "[step]<[3]"]),
        ("-state:failed,cancelled -old", ["-[state]:[failed],[cancelled]", "-[old]"]),
        ('name:"a b, c" "two words"', ["[name]:[a b, c]", "[two words]"]),
        (r'"say \"hi\" \\ \n"', [r'[say "hi" \ \n]']),
        ('"metrics.my loss"<0.5', ["[metrics.my loss]<[0.5]"]),
        ("metrics.val/f1>0.9 job-17", ["[metrics.val/f1]>[0.9]", "[job-17]"]),
        ("created_at>2026-11-26T14:30Z", ["[created_at]>[2026-11-26T14:30Z]"]),
        ('"OR" or x -h', ["[OR]", "[or]", "[x]", "-[h]"]),
        ("a,b lr<1,5", ["[a,b]", "[lr]<[1,5]"]),
        ("--x", ["-[-x]"]),
    ],
)
def test_query_is_split_into_terms(query: str, expected: list[str]) -> None:
    assert [short(term) for term in parse_query(query)] == expected


@pytest.mark.parametrize(
    ("query", "position", "message"),
    [
        ("lr>", 3, "expected a value after >"),
        ("lr> 5", 3, "expected a value after >"),
        ("a state:", 8, "expected a value after :"),
        ("state:failed,", 13, "expected a value after the comma"),
        ("-", 1, "expected a field or a word to search for"),
        ("a - b", 3, "expected a field or a word to search for"),
        (":5", 0, "expected a field or a word to search for"),
        (
            "state:completed OR state:failed",
            16,
            "all terms must match; write FIELD:a,b for any of "
            "several values, or OR in quotes for the text",
        ),
        ("a AND b", 2, "all terms must match; leave it out, or AND in quotes for the text"),
        ("duration<90 m", 12, "expected no space before the unit; write duration<90m"),
        ('name:"a b', 5, "expected a second quote that ends the text"),
        ('""', 0, "expected characters between the quotes"),
        ('"a"b', 3, "expected a space after the quote"),
        ('a"b"', 1, "expected the quote before the first character, or a space"),
        ("a\0b", 1, "expected no control character"),
        ("\ud800", 0, "expected no control character"),
        ("a " * (MAX_TERMS + 1), 2 * MAX_TERMS, "expected at most 20 terms"),
        ("a" * (MAX_QUERY + 1), MAX_QUERY, "expected at most 1,000 characters"),
    ],
)
def test_error_has_its_position(query: str, position: int, message: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse_query(query)
    assert (caught.value.position, str(caught.value)) == (position, message)


pieces = st.lists(
    st.sampled_from(['"', "\\", "-", ":", "=", "<", ">", ",", " ", "a", "lr", "1", "\0", "ü", "😀"])
    | st.text(max_size=3),
    max_size=30,
).map("".join)


@given(pieces)
@example('"\\')
@example("-" * 40)
def test_any_text_is_a_query_or_has_a_position(query: str) -> None:
    error: QueryError | None = None
    terms: list[Term] = []
    try:
        terms = parse_query(query)
    except QueryError as raised:
        error = raised
    assert error is None or 0 <= error.position <= len(query)
    assert error is None or str(error).startswith("expected ")
    positions = [term.values[0].position for term in terms]
    assert positions == sorted(set(positions))
    for term in terms:
        texts = [*term.values, *([term.field] if term.field is not None else [])]
        assert all(text.text and 0 <= text.position < len(query) for text in texts)


quotable = st.text(
    st.characters(exclude_categories=("Cs", "Cc", "Cf", "Co", "Cn", "Zl", "Zp", "Zs")), min_size=1
)


@given(
    st.booleans(), quotable, st.sampled_from(Operator), st.lists(quotable, min_size=1, max_size=3)
)
def test_quoted_text_is_read_as_it_is(
    negated: bool, field: str, operator: Operator, values: list[str]
) -> None:
    def quoted(text: str) -> str:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'

    if operator not in (Operator.HAS, Operator.EQUALS):
        del values[1:]
    written = "-" * negated + quoted(field) + operator + ",".join(map(quoted, values))
    assume(len(written) <= MAX_QUERY)
    (term,) = parse_query(written)
    assert term.field is not None
    assert (term.negated, term.field.text, term.operator) == (negated, field, operator)
    assert [value.text for value in term.values] == values
