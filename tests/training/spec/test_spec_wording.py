"""Every complaint of pydantic has words, also those that come without their context."""

from pydantic_core import list_all_errors

from trainhall.training.spec.wording import in_words


def test_every_kind_of_error_is_told_with_and_without_its_context() -> None:
    for kind in list_all_errors():
        bare = {"type": kind["type"], "msg": "Value error, as pydantic says", "input": ""}
        assert in_words({**bare, "ctx": kind["example_context"]})
        told = in_words(bare)
        assert told
        assert not told.startswith("Value error")


def test_the_key_of_a_mapping_may_be_too_short() -> None:
    error = {"type": "string_too_short", "msg": "String should have at least 1 character"}
    assert in_words(error) == "String should have at least 1 character"
