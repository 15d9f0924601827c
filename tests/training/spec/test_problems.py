"""Every error of pydantic has a message of ours, also without its context."""

from typing import get_args

from pydantic_core.core_schema import ErrorType

from trainhall.training.spec.problems import error_message


def test_every_error_kind_has_wording() -> None:
    kinds = get_args(ErrorType)
    assert "string_too_short" in kinds
    for kind in kinds:
        message = error_message({"type": kind, "msg": "Value error, as pydantic says", "input": ""})
        assert message
        assert not message.startswith("Value error")


def test_short_mapping_key_has_wording() -> None:
    error = {"type": "string_too_short", "msg": "String should have at least 1 character"}
    assert error_message(error) == "String should have at least 1 character"
