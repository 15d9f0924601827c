"""A nested state as named tensors and plain values, and back in place.

`{"model": {"layer.weight": tensor}, "optimizer": {"state": {0: {"step": 3}}}}` becomes the tensor
`model/layer.weight` and the value `optimizer/state/0/step`. Containers are dicts with keys of str
or int, lists and tuples. In a part of a name `/` is written `~1` and `~` is written `~0`, as in
JSON pointers (RFC 6901).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

Plain = None | bool | int | float | str

EXTRA = "extra"
"""The key of a state that is plain data, not tensors."""

_FLOAT = "$float"


@dataclass
class FlatState:
    tensors: dict[str, Tensor] = field(default_factory=dict)
    values: dict[str, Plain] = field(default_factory=dict)


def without_extra(state: Mapping[str, Any]) -> FlatState:
    """Flatten all of a state but its `extra`."""
    return flatten({key: part for key, part in state.items() if key != EXTRA})


def flatten(state: Mapping[str, Any]) -> FlatState:
    """Name every leaf of a state; tensors are taken by reference.

    Raises:
        TypeError: a leaf is neither a tensor nor None, bool, int, float or str.
        ValueError: two leaves have the same name (the keys 1 and "1").
    """
    flat = FlatState()

    def take(name: str, leaf: Any) -> Any:
        if name in flat.tensors or name in flat.values:
            raise ValueError(f"two entries of the state are called {name}")
        if isinstance(leaf, Tensor):
            flat.tensors[name] = leaf
        elif leaf is None or isinstance(leaf, (bool, int, float, str)):
            flat.values[name] = leaf
        else:
            raise TypeError(
                f"{name} is a {type(leaf).__name__}; a checkpoint holds tensors, None, bool, int, "
                "float and str, in dicts, lists and tuples"
            )
        return leaf

    _walk("", state, take)
    return flat


def put_values(state: dict[str, Any], values: Mapping[str, Plain]) -> None:
    """Replace the values of a state in place by those of the same name; tensors stay."""

    def replace(name: str, leaf: Any) -> Any:
        return leaf if isinstance(leaf, Tensor) else values[name]

    _walk("", state, replace)


def to_json(value: Any, where: str = "extra") -> Any:
    """Encode plain data for JSON; NaN and the infinities become `{"$float": "nan"}`.

    Raises:
        TypeError: it would not be restored the same: another type, or a key that is not a str.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {_FLOAT: repr(value)}
        case list() | tuple():
            return [to_json(item, f"{where}[{i}]") for i, item in enumerate(value)]
        case dict():
            for key in value:
                if not isinstance(key, str) or key == _FLOAT:
                    raise TypeError(f"{where} has the key {key!r}; keys are str, but not {_FLOAT}")
            return {key: to_json(item, f"{where}.{key}") for key, item in value.items()}
        case _:
            raise TypeError(
                f"{where} is a {type(value).__name__}; it may hold None, bool, int, float, str, "
                "lists and dicts"
            )


def from_json(value: Any) -> Any:
    """Decode the result of `to_json`; tuples become lists."""
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if isinstance(value, dict):
        if value.keys() == {_FLOAT}:
            return float(value[_FLOAT])
        return {key: from_json(item) for key, item in value.items()}
    return value


def escaped(key: str | int) -> str:
    """Return a key as part of a name."""
    return str(key).replace("~", "~0").replace("/", "~1")


def unescaped(part: str) -> str:
    """Return a key as it was, of a part of a name."""
    return part.replace("~1", "/").replace("~0", "~")


def _walk(name: str, node: Any, leaf: Callable[[str, Any], Any]) -> Any:
    """Visit a tree in order; what `leaf` returns takes the leaf's place."""
    match node:
        case dict():
            for key, item in node.items():
                _put(node, key, item, _walk(_join(name, key), item, leaf))
            return node
        case list():
            for i, item in enumerate(node):
                _put(node, i, item, _walk(_join(name, i), item, leaf))
            return node
        case tuple():
            items = [_walk(_join(name, i), item, leaf) for i, item in enumerate(node)]
            same = all(a is b for a, b in zip(items, node, strict=True))
            return node if same else tuple(items)
        case Mapping():
            for key, item in node.items():
                _walk(_join(name, key), item, leaf)
            return node
        case _:
            return leaf(name, node)


def _put(container: Any, key: Any, old: Any, new: Any) -> None:
    if new is not old:
        container[key] = new


def _join(name: str, key: Any) -> str:
    if isinstance(key, bool) or not isinstance(key, (str, int)):
        raise TypeError(f"{name or 'the state'} has the key {key!r}; keys are str or int")
    part = escaped(key)
    return f"{name}/{part}" if name else part
