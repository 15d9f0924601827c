"""Reproducible data parallelism: the same bits on any number of ranks, up to that of the shards.

The global batch is cut into logical shards, and each rank computes some, one after the other.
Random state, batch norm and gradients are those of a shard, never of a rank; what shards give is
added in one fixed tree (`trainhall.distributed.tree`), within a rank and across ranks.
"""

import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future

from trainhall.distributed.tree import divide, merges
from trainhall.distributed.tree_sum import TreeSum
from trainhall.parallelism.data_parallel import ddp
from trainhall.parallelism.data_parallel.ddp import Replicas
from trainhall.parallelism.strategy import Loss, NoGradientError, Tools

T = TypeVar("T")

_Gradients = list[Tensor]
"""Gradients of all parameters, in their order."""


class LogicalShards(Replicas):
    """A model that every rank holds whole, trained on each batch in logical shards."""

    def __init__(
        self, model: nn.Module, *, device: torch.device, bucket_mb: float, shards: int
    ) -> None:
        """Cut the global batch into `shards`: at least as many as ranks."""
        self._shards = shards
        self._exchange: _Exchange | None = None
        super().__init__(model, device=device, bucket_mb=bucket_mb)
        mine = divide(shards, self.degrees.data)[dist.get_rank() if self.averages else 0]
        self.samples, self.held = mine.start, len(mine)
        self._merges = dict(zip(mine, merges(shards, mine), strict=True))
        self._last = mine[-1]
        self._buffers = list(model.buffers())
        self._final = True
        self._reached: set[Tensor] = set()
        """The parameters to which the present backward pass has added a gradient."""
        for parameter in self._parameters:
            handle = parameter.register_post_accumulate_grad_hook(self._reached.add)
            # The model outlives this: the ranks of a job regroup around it.
            weakref.finalize(self, handle.remove).atexit = False

    def _spread(self, model: nn.Module, device: torch.device, bucket_mb: float) -> nn.Module:
        self._exchange = _Exchange(self._shards, device)
        return ddp.apply(
            model, device=device, bucket_mb=bucket_mb, hook=self._exchange, buffers=False
        )

    @property
    def num_parts(self) -> int:
        return self._shards

    @property
    def sent_bytes(self) -> None:
        """A tree of sums is not counted."""

    def gradients(
        self, batches: Iterable[Any], loss_of: Loss, tools: Tools, *, rounds: int
    ) -> list[Tensor]:
        """Compute gradients as any strategy, but return global-batch means, on all ranks.

        Args:
            batches: `rounds` micro-batches of every shard that this rank holds, shard by shard.

        Raises:
            NoGradientError: a parameter takes no part in the loss.
        """
        source = iter(batches)
        before = [buffer.clone() for buffer in self._buffers]
        sums: list[_Gradients] = []
        accounts: list[Tensor] = []
        for shard, completed in self._merges.items():
            tools.shard_begins(shard)
            if before and shard != self.samples:
                torch._foreach_copy_(self._buffers, before)
            self._final = shard == self._last
            if self._final and self._exchange is not None:
                self._exchange.begin(self._parameters, sums, completed, tools)
            means = super().gradients(islice(source, rounds), loss_of, tools, rounds=rounds)
            _push(accounts, self._account(means, before), completed, Tensor.add_)
            gradients = [p.grad for p in self._parameters if p.grad is not None]
            if not (self._final and self._exchange is not None):
                self.clear_gradients()
                _push(sums, gradients, completed, _add)
        if self._exchange is not None:
            account = self._exchange.finish(torch.stack(accounts))
            tools.communication_ended()
        else:
            (account,), (gradients,) = accounts, sums
            for parameter, gradient in zip(self._parameters, gradients, strict=True):
                parameter.grad = gradient
        return self._settled(account / self._shards, means, before)

    def backward(
        self, batch: Any, loss_of: Loss, tools: Tools, *, rounds: int, last: bool
    ) -> list[Tensor]:
        """Run as any strategy; the gradients of all shards add up to the mean."""
        rounds *= self._shards
        self._reached.clear()
        means = super().backward(batch, loss_of, tools, rounds=rounds, last=last and self._final)
        self._check_reached()
        return means

    def average_gradients(self) -> None:
        """Do nothing: `backward` sees that all are there, on one rank as on several."""

    def _check_reached(self) -> None:
        if len(self._reached) == len(self._parameters):
            return
        absent = [name for name, p in self.parameters.items() if p not in self._reached]
        raise NoGradientError(
            f"{', '.join(absent)} got no gradient: the loss does not depend on it. With "
            "training.reproducible every trained parameter takes part in every micro-batch; "
            "set requires_grad to False on what is not trained"
        )

    def _account(self, means: list[Tensor], before: list[Tensor]) -> Tensor:
        """Return a shard's results besides gradients, as one vector: its means, and by how much it
        changed each buffer. Differences keep what no shard changes as it is, to the last bit."""
        changes = [
            torch.where(now == then, 0, now - then).double().reshape(-1)
            for now, then in self._floating(before)
        ]
        return torch.cat([torch.stack(means).double(), *changes])

    def _settled(self, account: Tensor, means: list[Tensor], before: list[Tensor]) -> list[Tensor]:
        """Give all ranks the mean change of each buffer; returns the means of the batch."""
        at = len(means)
        for now, then in self._floating(before):
            change = account[at : at + now.numel()].view(now.shape)
            now.copy_(then + change.to(now.dtype))
            at += now.numel()
        return [mean.to(one.dtype) for mean, one in zip(account[: len(means)], means, strict=True)]

    def _floating(self, before: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Return the buffers that can be averaged, with old values; others count steps."""
        pairs = zip(self._buffers, before, strict=True)
        return [(now, then) for now, then in pairs if now.is_floating_point()]


class _Exchange:
    """Adds the gradients of a backward pass over the ranks, bucket by bucket, while it runs.

    It is DDP's communication hook. On the CPU a thread of its own does the work, since Gloo's
    collectives are waited for; on a GPU a stream of its own.
    """

    def __init__(self, shards: int, device: torch.device) -> None:
        self._tree = TreeSum(shards)
        on_gpu = device.type == "cuda"
        self._devices: list[int | str | torch.device] | None = [device] if on_gpu else None
        self._stream = torch.cuda.Stream(device) if on_gpu else None
        self._thread = None if on_gpu else ThreadPoolExecutor(1, thread_name_prefix="tree sum")
        self._position: dict[Tensor, int] = {}
        self._sums: list[_Gradients] = []
        self._completed = 0
        self._rests: list[tuple[Tensor, Tensor]] = []
        self._failure: Exception | None = None
        """Reported by `finish`: DDP would take it for a tensor, and report something else."""
        self._tools: Tools

    def begin(
        self,
        parameters: list[nn.Parameter],
        sums: list[_Gradients],
        completed: int,
        tools: Tools,
    ) -> None:
        """Prepare the exchange for the backward pass of this rank's last shard.

        Args:
            sums: of the shards before it, by subtree.
            completed: how many of them make a larger subtree with the last shard.
        """
        if not self._position:
            self._position = {parameter: i for i, parameter in enumerate(parameters)}
        self._sums, self._completed, self._rests = sums, completed, []
        self._tools = tools

    def combine(self, _: None, bucket: dist.GradBucket) -> Future[Tensor]:
        """Replace a bucket of this rank's gradients by the sum over the tree."""
        sums, result = self._subtree_sums(bucket), bucket.buffer()
        # What the ranks cannot divide equally waits for `finish`.
        size = len(result) - len(result) % self._tree.world_size
        if size < len(result):
            self._rests.append((sums[:, size:], result[size:]))
        done: Future[Tensor] = Future(devices=self._devices)

        def add() -> None:
            try:
                if size and self._failure is None:
                    begun = self._tools.now()
                    self._tree.all_reduce(sums[:, :size], result[:size])
                    self._tools.sent(begun, self._tools.now())
            except Exception as error:
                self._failure = error
            done.set_result(result)

        if self._thread is not None:
            self._thread.submit(add)
        elif self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream())
            sums.record_stream(self._stream)  # or its memory might be given away too early
            with torch.cuda.stream(self._stream):
                add()
        return done

    def finish(self, accounts: Tensor) -> Tensor:
        """Complete the gradients, once the backward pass has ended; the sum of all accounts.

        Args:
            accounts: [subtrees of this rank, elements].

        Raises:
            RuntimeError: the gradients are of no use.
        """
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        *totals, account = self._tree.all_reduce_small([*(s for s, _ in self._rests), accounts])
        for (_, target), total in zip(self._rests, totals, strict=True):
            target.copy_(total)
        self._sums, self._rests = [], []
        return account

    def _subtree_sums(self, bucket: dist.GradBucket) -> Tensor:
        """Return this rank's sums of a bucket [subtree, element]; in the bucket if only one."""
        last, gradients = bucket.buffer(), bucket.gradients()
        which = [self._position[parameter] for parameter in bucket.parameters()]
        sums = [[sum_[i] for i in which] for sum_ in self._sums]
        for _ in range(self._completed):
            torch._foreach_add_(gradients, sums.pop())
        rows = last.unsqueeze(0)
        if sums:
            rows = last.new_empty(len(sums) + 1, len(last))
            rows[-1] = last
        for row, sum_ in zip(rows, sums, strict=False):
            for gradient, value in zip(gradients, sum_, strict=True):
                start = gradient.storage_offset() - last.storage_offset()
                # As the gradient lies in the bucket: it need not be contiguous.
                row[start:].as_strided(gradient.shape, gradient.stride()).copy_(value)
        return rows


def _push(stack: list[T], value: T, completed: int, add: Callable[[T, T], T]) -> None:
    """Put a shard's value on the sums so far, and make the newest two one, so many times."""
    stack.append(value)
    for _ in range(completed):
        newest = stack.pop()
        stack.append(add(stack.pop(), newest))


def _add(left: _Gradients, right: _Gradients) -> _Gradients:
    torch._foreach_add_(left, right)
    return left
