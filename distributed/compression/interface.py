"""The interface between a compression and the algorithm that carries it.

DDP cuts the gradients into buckets, and calls its communication hook (`data_parallel/hook.py`) with
each one as soon as the backward pass has filled it. The hook hands the bucket to its own thread,
which divides it by the number of ranks, so that what is left to compute is a sum, and calls
`Compression.combine(bucket, exchange)`. When that returns, the bucket must hold the sum over the
ranks, as near as the compression gets, in the same bits on every rank.

The exchange is the algorithm: its `sum` is `ring`, `tree` … or the backend's own all-reduce. A
compression knows no other way to talk to other ranks, so any compression runs with any algorithm.

What all this rests on:

- Every rank calls with the same buckets in the same order, and so makes the same calls of the
  exchange, with tensors of the same size and type. The first time that the hook sees a layout of
  buckets, it has the ranks compare it.
- Buckets may be laid out again in another attempt, so state goes by parameter, not by bucket.
- Since a bucket was divided first, a residual is in units of the mean's gradient: a rank that sends
  it, the sum over the ranks of what is kept back is what the mean lacks. A change of the world size
  has to keep that sum.
- Gradients of a loss that is scaled (fp16) come scaled. An overflow comes as infinity or NaN and
  must still be one in the sum, on all ranks.
- An exception ends the step on this rank: it is raised from the backward pass, and the process
  group cannot be used again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class Bucket:
    """Gradients that are combined in one go."""

    index: int
    """Position among the buckets of a backward pass, from 0."""
    flat: Tensor
    """[elements]: this rank's gradients, one after the other, divided by the number of ranks. To
    be overwritten with the sum over the ranks. It is floating-point, and lies on the model's
    device."""
    gradients: tuple[Tensor, ...]
    """The same memory, as tensors of the parameters' shapes."""
    names: tuple[str, ...]
    """Names of the parameters, as in the plain model's state dict."""


class Exchange(Protocol):
    """This rank's end of an algorithm; every call is a collective.

    Raises:
        CollectiveError: it broke; the message names peer, round and bytes.
    """

    @property
    def rank(self) -> int: ...

    @property
    def world_size(self) -> int: ...

    def sum(self, tensor: Tensor) -> None:
        """Replace a one-dimensional, contiguous tensor by its sum over the ranks: the same bits on
        all of them."""

    def gather(self, tensor: Tensor) -> Tensor:
        """Gather [ranks, elements]: every rank's 1-D tensor, of one size and any type."""


class Compression(Protocol):
    """A compression: the part of a bucket that is sent, its combination, and the residual."""

    def combine(self, bucket: Bucket, exchange: Exchange) -> None:
        """Overwrite `bucket.flat` with the sum over the ranks. Runs on the hook's thread, and on a
        GPU in the hook's stream."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return this rank's state, to continue exactly as before. The hook is idle."""

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over what `state_dict` gave."""


class Stateless:
    """A compression that keeps nothing from step to step."""

    def state_dict(self) -> dict[str, Tensor]:
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Do nothing: there is no state."""


class Dense(Stateless):
    """All of it, as it is: the compression `none`."""

    def combine(self, bucket: Bucket, exchange: Exchange) -> None:
        exchange.sum(bucket.flat)
