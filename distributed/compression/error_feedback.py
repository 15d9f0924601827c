"""Error feedback: the residual of a compression is added to the gradient of the next step."""

from collections.abc import Mapping

import torch
from torch import Tensor

from trainhall.distributed.compression.interface import Bucket

RESIDUAL = "residual/"
"""Begins the names of what each rank has of its own; the rest of a state is the same on all."""


class Residuals:
    """This rank's residuals, one per parameter in its shape.

    Without it a small gradient would never be sent; with it everything is, only later (Stich et
    al., "Sparsified SGD with Memory", arXiv:1809.07599; Karimireddy et al., arXiv:1901.09847).
    """

    def __init__(self) -> None:
        self._by_name: dict[str, Tensor] = {}
        self._flat: dict[tuple[str, ...], Tensor] = {}
        """The same memory, bucket by bucket."""

    def of(self, bucket: Bucket) -> Tensor:
        """Return [elements]: what the bucket's gradients still lack; to be changed in place."""
        if bucket.names not in self._flat:
            # Buckets may have been laid out again.
            for names in [old for old in self._flat if not set(old).isdisjoint(bucket.names)]:
                del self._flat[names]
            flat = self._flat[bucket.names] = torch.zeros_like(bucket.flat)
            for name, gradient in zip(bucket.names, bucket.gradients, strict=True):
                part = _place(gradient, bucket.flat, flat)
                if name in self._by_name:
                    part.copy_(self._by_name[name])
                self._by_name[name] = part
        return self._flat[bucket.names]

    def state_dict(self) -> dict[str, Tensor]:
        return {RESIDUAL + name: part for name, part in self._by_name.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over what `state_dict` gave, or another compression's; the rest is left alone."""
        self._by_name = {
            name.removeprefix(RESIDUAL): tensor
            for name, tensor in state.items()
            if name.startswith(RESIDUAL)
        }
        self._flat = {}


def added(tensors: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Add two sets of residuals, by parameter; neither is changed."""
    sums = {**others, **tensors}
    for name in tensors.keys() & others.keys():
        sums[name] = tensors[name] + others[name].to(tensors[name])
    return sums


def _place(gradient: Tensor, bucket: Tensor, like: Tensor) -> Tensor:
    """Return the part of a tensor laid out like `bucket` that corresponds to `gradient`."""
    offset = gradient.storage_offset() - bucket.storage_offset()
    return like.as_strided(gradient.size(), gradient.stride(), offset)


def parts(bucket: Bucket, flat: Tensor) -> dict[str, Tensor]:
    """Return each parameter's elements of a tensor in the bucket's layout, as flat views."""
    sizes = [gradient.numel() for gradient in bucket.gradients]
    return dict(zip(bucket.names, flat.split(sizes), strict=True))
