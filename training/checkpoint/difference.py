"""Finds differences between a checkpoint and the state that it is to fill."""

from collections.abc import Set
from typing import Any

from trainhall.training.checkpoint.index import Index
from trainhall.training.checkpoint.state import FlatState


def first_difference(
    flat: FlatState, index: Index, rank: int, elsewhere: Set[str] = frozenset()
) -> str | None:
    """Return the first name, in order, at which a checkpoint and the state to fill differ.

    Args:
        elsewhere: names that other ranks have, or that are optional.
    """
    saved: dict[str, Any] = {**index.metadata.state_dict_metadata}
    values = index.values_of(rank)
    mine = {**flat.tensors, **flat.values}
    for name in sorted(mine.keys() | saved.keys() | values.keys()):
        if name not in mine and name in elsewhere:
            continue
        if name not in mine:
            return f"{name} is in the checkpoint, but not in the model or optimizer"
        if name not in saved and name not in values:
            return f"{name} is not in the checkpoint"
        if (name in flat.tensors) != (name in saved):
            kinds = ("a tensor", "a plain value")
            here, there = kinds if name in flat.tensors else reversed(kinds)
            return f"{name} is {there} in the checkpoint, but {here} here"
        if name in flat.tensors:
            tensor, entry = flat.tensors[name], saved[name]
            if tuple(tensor.shape) != tuple(entry.size):
                return (
                    f"{name} has the shape {list(entry.size)} in the checkpoint, but "
                    f"{list(tensor.shape)} here"
                )
            if tensor.dtype != entry.properties.dtype:
                return (
                    f"{name} has the dtype {entry.properties.dtype} in the checkpoint, but "
                    f"{tensor.dtype} here"
                )
    return None
