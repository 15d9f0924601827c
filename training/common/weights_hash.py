"""The digest by which two models are compared bit for bit."""

import hashlib
import sys
from collections.abc import Iterable

import torch
from torch import Tensor


def weights_sha256(weights: Iterable[tuple[str, Tensor]]) -> str:
    """Return the SHA-256 of the floating-point state of a plain (unwrapped, unsharded) model.

    For each entry: the name in UTF-8, a NUL byte, and its elements as contiguous little-endian
    bytes.

    Args:
        weights: the state dict, buffers included, in sorted order of names.
    """
    if sys.byteorder != "little":
        raise RuntimeError("weights are hashed as little-endian bytes, which this host's are not")
    digest = hashlib.sha256()
    for name, tensor in weights:
        if not tensor.is_floating_point():
            continue
        digest.update(name.encode() + b"\0")
        data = tensor.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8)
        digest.update(data.numpy().data)
    return digest.hexdigest()
