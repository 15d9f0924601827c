"""Batches: tensors, or tuples, lists and dicts of them."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor


def leaves_of(batch: Any) -> Iterator[Any]:
    """Yield the leaves of a batch's tuples, lists and dicts, in order."""
    if isinstance(batch, dict):
        for part in batch.values():
            yield from leaves_of(part)
    elif isinstance(batch, tuple | list):
        for part in batch:
            yield from leaves_of(part)
    else:
        yield batch


def mapped(batch: Any, change: Callable[[Any], Any]) -> Any:
    """Return a batch of the same form with every leaf changed."""
    if isinstance(batch, dict):
        return {key: mapped(part, change) for key, part in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(mapped(part, change) for part in batch))
    if isinstance(batch, tuple | list):
        return type(batch)(mapped(part, change) for part in batch)
    return change(batch)


def pieces(batch: Any, number: int, option: str) -> list[Any]:
    """Cut a batch into equal parts along dimension 0 of its tensors; each is a view.

    What is no tensor, or has no dimension, belongs to all of them.

    Args:
        option: that asks for so many parts, for the message.

    Raises:
        ValueError: a tensor cannot be cut so.
    """
    parts = []
    for index in range(number):
        cut = partial(_piece, index=index, number=number, option=option)
        parts.append(mapped(batch, cut))
    return parts


def _piece(leaf: Any, *, index: int, number: int, option: str) -> Any:
    if not isinstance(leaf, Tensor) or leaf.dim() == 0:
        return leaf
    size = len(leaf)
    if size == 0 or size % number:
        raise ValueError(
            f"a tensor of the batch has the shape {list(leaf.shape)}, which cannot be cut into "
            f"{number} equal parts along dimension 0 ({option})"
        )
    share = size // number
    return leaf[index * share : (index + 1) * share]


def shapes_of(batch: Any) -> list[tuple[int, ...]]:
    """Return the shapes of a batch's tensors and arrays."""
    return [tuple(leaf.shape) for leaf in leaves_of(batch) if hasattr(leaf, "shape")]


def to_device(batch: Any, device: torch.device) -> Any:
    """Move a batch's tensors from host memory to a device, without waiting for the copy."""
    if device.type == "cpu":
        return batch
    if isinstance(batch, Tensor):
        if batch.device.type != "cpu":
            return batch.to(device)
        # From pageable memory the driver may wait for the GPU; page-locked blocks are reused.
        return batch.pin_memory().to(device, non_blocking=True)
    if isinstance(batch, dict | tuple | list):
        return mapped(batch, lambda leaf: to_device(leaf, device))
    return batch


@contextmanager
def draws_of_its_own(device: torch.device) -> Iterator[None]:
    """Restore the generators of the host, and of a GPU, at the end, whatever is seeded and drawn
    within: to read a batch, or to ask a loss for something, changes no other number."""
    python, numbers = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numbers)
