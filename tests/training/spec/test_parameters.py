"""Parameters as data: what a spec accepts, and what a script's arguments become."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhall.training.spec import JobSpec, SpecError, parse_spec
from trainhall.training.spec.parameters import substitute
from trainhall.training.spec.parse import validate_spec


def spec(*args: str, **parameters: Any) -> JobSpec:
    script = {"path": "/train.py", "args": list(args)}
    return validate_spec({"name": "x", "script": script, "parameters": parameters})


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1, "0.1"), (1e-5, "1e-05"), (8, "8"), (True, "true"), ("a b", "a b"), ("", "")],
)
def test_argument_takes_the_value(value: Any, text: str) -> None:
    assert spec("--x=${x}", "${x}${x}", x=value).arguments == [f"--x={text}", text * 2]


def test_other_dollar_signs_stay_literal() -> None:
    args = ["${HOME}", "$x", "${x", "${ x }", "${}", "${y}"]
    assert spec(*args, x=1).arguments == args


def test_second_dollar_sign_escapes_a_name() -> None:
    args = ["$${x}", "$$${x}", "a$${x}${x}", "$${y}"]
    assert spec(*args, x=1).arguments == ["${x}", "$${x}", "a${x}1", "${y}"]


def test_undefined_name_is_refused_on_submission() -> None:
    script = {"path": "/train.py", "args": ["--lr", "${lr}", "$${HOME}", "${rate}/${x}"]}
    document = {"name": "x", "script": script, "parameters": {"rate": 1, "b": 2}}
    with pytest.raises(SpecError) as caught:
        parse_spec(json.dumps(document), "json")
    first, second = caught.value.problems
    assert (first.field, first.value) == ("script.args.1", "${lr}")
    assert first.message == (
        "no parameter is called lr; the parameters are b, rate; "
        "write $${lr} for the text ${lr} itself"
    )
    assert second.field == "script.args.3"
    assert "called x" in second.message
    parse_spec(json.dumps(document), "json", is_base=True)
    script["args"] = ["${a}"]
    with pytest.raises(SpecError, match="the spec has no parameters"):
        parse_spec(json.dumps({"name": "x", "script": script}), "json")


def test_value_is_not_substituted_again() -> None:
    assert spec("${a}", a="${b}", b="no").arguments == ["${b}"]


def test_document_keeps_arguments_and_types() -> None:
    made = spec("${x}", x=1.0, on=True, many=1, name="1")
    again = validate_spec(made.model_dump(mode="json", exclude_unset=True))
    assert again.script is not None
    assert again.script.args == ["${x}"]
    assert [repr(v) for v in again.parameters.values()] == ["1.0", "True", "1", "'1'"]


@pytest.mark.parametrize(
    ("parameters", "where"),
    [
        ({"1x": 1}, "1x"),
        ({"a.b": 1}, "a.b"),
        ({"": 1}, ""),
        ({"x" * 65: 1}, "x" * 65),
        ({"x": None}, "x"),
        ({"x": [1]}, "x"),
        ({"x": {}}, "x"),
        ({"x": float("nan")}, "x"),
        ({"x": "\0"}, "x"),
    ],
)
def test_bad_parameter_is_named(parameters: dict[str, Any], where: str) -> None:
    with pytest.raises(SpecError) as caught:
        validate_spec({"name": "x", "task": {"name": "digits"}, "parameters": parameters})
    (problem,) = caught.value.problems
    assert problem.field.removesuffix(".[key]") == f"parameters.{where}"
    assert problem.message.startswith("must be a")


def test_too_many_parameters_are_refused() -> None:
    many = {f"p{i}": i for i in range(257)}
    with pytest.raises(SpecError, match="256"):
        validate_spec({"name": "x", "task": {"name": "digits"}, "parameters": many})


@given(st.lists(st.text(max_size=20).filter(lambda text: "$${" not in text), max_size=4))
def test_without_parameters_nothing_changes(args: list[str]) -> None:
    assert substitute(args, {}) == args
