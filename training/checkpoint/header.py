"""The header of a safetensors file."""

import json
import struct
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import torch

from trainhall.training.checkpoint.index import dtype_name

LENGTH = struct.Struct("<Q")
"""The length of a header in bytes; a file begins with it."""

Form = tuple[torch.dtype, Sequence[int]]
"""A tensor's type and shape."""


def encode_header(
    forms: Mapping[str, Form], about: Mapping[str, str] | None = None
) -> tuple[list[str], bytes]:
    """Return the order in which tensors follow, and what precedes them: length and header.

    Large elements come first, so that every tensor is aligned.

    Args:
        about: written under `__metadata__`.
    """
    header: dict[str, Any] = {} if about is None else {"__metadata__": dict(about)}
    order = sorted(forms, key=lambda name: (-forms[name][0].itemsize, name))
    at = 0
    for name in order:
        dtype, shape = forms[name]
        end = at + prod(shape) * dtype.itemsize
        header[name] = {
            "dtype": dtype_name(dtype, name),
            "shape": list(shape),
            "data_offsets": [at, end],
        }
        at = end
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return order, LENGTH.pack(len(text)) + text
