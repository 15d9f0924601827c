"""The digest by which two models are compared bit for bit."""

import hashlib
import sys

import torch
from torch import nn


def weights_sha256(model: nn.Module) -> str:
    """SHA-256 over a plain (unwrapped, unsharded) model's floating-point state, buffers included.

    In sorted order of names, for each entry: the name in UTF-8, a NUL byte, and its elements as
    contiguous little-endian bytes.
    """
    if sys.byteorder != "little":
        raise RuntimeError("weights are hashed as little-endian bytes, which this host's are not")
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if not tensor.is_floating_point():
            continue
        digest.update(name.encode() + b"\0")
        data = tensor.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8)
        digest.update(memoryview(data.numpy()))
    return digest.hexdigest()
