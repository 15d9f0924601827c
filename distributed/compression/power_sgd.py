"""Ranks send two thin matrices whose product is close to the sum of their gradients."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from trainhall.distributed.compression.error_feedback import Residuals, parts
from trainhall.distributed.compression.interface import Bucket, Exchange

BASIS = "basis/"
"""Begins the names of the bases that the next step starts from."""


@dataclass
class _Matrix:
    """A gradient that is approximated."""

    name: str
    gradient: Tensor
    """[rows, columns]"""
    residual: Tensor
    """[rows, columns]"""
    rank: int


class PowerSGD:
    """A low-rank approximation (Vogels et al., "PowerSGD", arXiv:1905.13727), with error feedback.

    A gradient of two or more dimensions is a matrix M, its first dimension being the rows. With
    the Q of the step before (the warm start) one step of power iteration is P = Σ M Q, its columns
    made orthonormal; Q = Σ Mᵀ P; the result is P Qᵀ. Both sums over the ranks are linear, so they
    take two small all-reduces of any algorithm. Each rank keeps M - P (Mᵀ P)ᵀ for the next step.

    What has one dimension, or would not become smaller, travels whole with the first all-reduce.

    Args:
        ratio: of a matrix's numbers that are sent, in (0, 1]. It gives the rank of the
            approximation, rows · columns · ratio / (rows + columns) rounded down, at least 1; with
            a ratio of 1 everything is sent whole.
    """

    def __init__(self, ratio: float) -> None:
        self.ratio = ratio
        self._residuals = Residuals()
        self._bases: dict[str, Tensor] = {}
        """Every Q: [columns, rank]."""

    def combine(self, bucket: Bucket, exchange: Exchange) -> None:
        matrices, whole = self._divided(bucket)
        sums = _summed([*whole, *(m.gradient @ self._basis(m) for m in matrices)], exchange)
        for part, total in zip(whole, sums, strict=False):  # the others are of matrices
            part.copy_(total)
        if not matrices:
            return
        lefts = [_orthonormal(left) for left in sums[len(whole) :]]
        own = [m.gradient.t() @ left for m, left in zip(matrices, lefts, strict=True)]
        rights = _summed(own, exchange)
        # An infinity or NaN of any rank is in all sums; it must not stay here forever.
        finite = all(bool(right.isfinite().all()) for right in rights)
        for matrix, left, mine, right in zip(matrices, lefts, own, rights, strict=True):
            if finite:
                torch.addmm(matrix.gradient, left, mine.t(), alpha=-1, out=matrix.residual)
                # In memory of its own, as after a resume: where it lies changes the rounding.
                self._bases[matrix.name] = right.clone()
            torch.mm(left, right.t(), out=matrix.gradient)

    def state_dict(self) -> dict[str, Tensor]:
        bases = {BASIS + name: basis for name, basis in self._bases.items()}
        return self._residuals.state_dict() | bases

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self._residuals.load_state_dict(state)
        self._bases = {
            name.removeprefix(BASIS): basis
            for name, basis in state.items()
            if name.startswith(BASIS)
        }

    def _divided(self, bucket: Bucket) -> tuple[list[_Matrix], list[Tensor]]:
        """Divide a bucket into approximated and whole gradients, with the residuals of earlier
        steps."""
        residual = self._residuals.of(bucket)
        bucket.flat.add_(residual)
        matrices: list[_Matrix] = []
        whole: list[Tensor] = []
        own, left = parts(bucket, bucket.flat), parts(bucket, residual)
        for name, gradient in zip(bucket.names, bucket.gradients, strict=True):
            rank = rank_for(gradient.shape, self.ratio)
            if rank is None:
                whole.append(own[name])
                left[name].zero_()  # another compression may have left some
            else:
                shape = len(gradient), -1
                matrices.append(_Matrix(name, own[name].view(shape), left[name].view(shape), rank))
        return matrices, whole

    def _basis(self, matrix: _Matrix) -> Tensor:
        """Return the Q to start from: the last step's, or the same random one on all ranks."""
        shape = matrix.gradient.shape[1], matrix.rank
        basis = self._bases.get(matrix.name)
        if basis is None or basis.shape != shape:
            generator = torch.Generator().manual_seed(zlib.crc32(matrix.name.encode()))
            basis = torch.randn(shape, generator=generator, dtype=torch.float64)
        return basis.to(matrix.gradient)


def rank_for(shape: Sequence[int], ratio: float) -> int | None:
    """Return the rank at which a gradient is approximated; None: it is sent whole."""
    if len(shape) < 2 or prod(shape) == 0 or ratio == 1:
        return None
    rows, columns = shape[0], prod(shape[1:])
    rank = max(1, int(rows * columns * ratio / (rows + columns)))
    return rank if rank * (rows + columns) < rows * columns else None


def _summed(tensors: Sequence[Tensor], exchange: Exchange) -> list[Tensor]:
    """Sum them over the ranks, in one go."""
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    exchange.sum(flat)
    sums = flat.split([tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape) for part, tensor in zip(sums, tensors, strict=True)]


def _orthonormal(matrix: Tensor) -> Tensor:
    """Return a basis of the space of a matrix's columns, in as many columns.

    Those that depend on others, as all do of a gradient of zero, are replaced by some that do not:
    no direction is lost for good.
    """
    wide = matrix if matrix.itemsize > 2 else matrix.float()
    basis: Tensor = torch.linalg.qr(wide).Q
    return basis.to(matrix.dtype)
