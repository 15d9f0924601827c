"""A nested state is flattened and restored; plain data survives JSON."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainhall.training.checkpoint.state import flatten, from_json, put_values, to_json

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text().filter(lambda k: k != "$float"), inner)
    ),
    max_leaves=10,
)


def test_names_read_as_documented() -> None:
    weight = torch.zeros(1)
    flat = flatten(
        {"model": {"layer.weight": weight}, "optimizer": {"state": {0: {"step": 3}}, "a/b~": [1]}}
    )
    assert flat.tensors["model/layer.weight"] is weight
    assert flat.values == {"optimizer/state/0/step": 3, "optimizer/a~1b~0/0": 1}


def test_values_are_replaced_in_place_and_tuples_rebuilt() -> None:
    groups = [{"lr": 0.1, "betas": (0.9, 0.99), "params": [0, 1]}]
    weight = torch.ones(1)
    state: dict[str, Any] = {"groups": groups, "w": weight, "n": 1}
    values = {**flatten(state).values, "groups/0/lr": 0.5, "groups/0/betas/1": 0.5, "n": None}
    put_values(state, values)
    assert state == {
        "groups": [{"lr": 0.5, "betas": (0.9, 0.5), "params": [0, 1]}],
        "w": weight,
        "n": None,
    }
    assert state["groups"] is groups


@given(plain)
def test_plain_data_survives(value: Any) -> None:
    assert from_json(to_json(value)) == value


def test_numbers_without_json_form_survive() -> None:
    there = to_json({"a": [math.inf, -math.inf, math.nan]})
    back = from_json(there)["a"]
    assert back[:2] == [math.inf, -math.inf]
    assert math.isnan(back[2])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": {1: 2}}, "extra.a has the key 1"),
        ({"a": [b"x"]}, r"extra\.a\[0\] is a bytes"),
        ({"a": torch.zeros(1)}, "extra.a is a Tensor"),
        ({"$float": 1}, r"has the key '\$float'"),
    ],
)
def test_state_refuses_lossy_values(value: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        to_json(value)


def test_state_of_other_things_is_refused() -> None:
    with pytest.raises(TypeError, match="model/hook is a function"):
        flatten({"model": {"hook": lambda: None}})
    with pytest.raises(TypeError, match="model has the key"):
        flatten({"model": {None: 1}})
    with pytest.raises(ValueError, match="two entries of the state are called model/1"):
        flatten({"model": {1: 1, "1": 2}})
