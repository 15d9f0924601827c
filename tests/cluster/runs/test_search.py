"""Filters of MLflow's search, whatever their length."""

import pytest

from trainhall.cluster.errors import InvalidValueError
from trainhall.cluster.runs import search


@pytest.mark.parametrize(
    ("pattern", "text", "is_like"),
    [
        ("a%b_d%e", "a--bcd-e", True),
        ("a%b_d%e", "a--bcd-e-", False),
        ("%%", "", True),
        ("", "a", False),
        ("%ab%b", "ab", False),
        ("a.c", "abc", False),
    ],
)
def test_like(pattern: str, text: str, is_like: bool) -> None:
    assert (search._like(pattern, ignores_case=False).fullmatch(text) is not None) is is_like


def test_many_wildcards_take_no_exponential_time() -> None:
    like = search._like("%a" * 1000 + "%b", ignores_case=True)
    assert like.fullmatch("a" * 8000) is None


@pytest.mark.parametrize(
    "text", ["run_id = 'a' and " * 60 + "run_id = 'a'", "run_id = '" + "a" * 20_000 + "'"]
)
def test_long_filters_are_refused(text: str) -> None:
    with pytest.raises(InvalidValueError, match="at most"):
        search._parse_filter(text)
