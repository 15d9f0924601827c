"""Gradients are averaged by communication hooks that do what DDP does without one, and more.

They can stop waiting for other ranks, which DDP cannot (`breakable`). And they see how long
gradients are on their way while the backward pass still computes others. DDP's own log shows
when the first bucket was sent and when the backward pass ended, but not what became of the first
bucket in between: a network that was idle for most of that time would count as busy."""

from typing import NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from trainhall.distributed import breakable
from trainhall.parallelism.strategy import Tools


class Hook(Protocol):
    """The function that combines gradients over the ranks."""

    def combine(self, _: None, bucket: dist.GradBucket) -> Future[Tensor]:
        """Begin to combine a bucket's gradients. DDP calls it with each as soon as it is full, in
        the same order on all ranks, and takes over at the end of the backward pass what came of
        them."""


class _Sent(NamedTuple):
    work: dist.Work
    flat: Tensor
    done: Future[Tensor]


class Average:
    """DDP's average over the default process group, of gradients in host memory.

    Args:
        timed: report when each bucket leaves and when it is back. That costs some microseconds,
            nothing beside sending buckets of which there are several.

    Attributes:
        tools: those of the present step, if it is timed.
    """

    def __init__(self, *, timed: bool = False) -> None:
        self.tools: Tools
        self._timed = timed
        self._failure: RuntimeError | None = None
        self._share = 1 / dist.get_world_size()
        self._sent: list[_Sent] = []

    def combine(self, _: None, bucket: dist.GradBucket) -> Future[Tensor]:
        flat = bucket.buffer()
        flat *= self._share
        begun = self.tools.now() if self._timed else None
        work = dist.all_reduce(flat, async_op=True)
        assert work is not None
        if self._timed:
            tools = self.tools
            work.get_future().then(lambda _: tools.sent(begun, tools.now()))
        done: Future[Tensor] = Future()
        self._sent.append(_Sent(work, flat, done))
        if bucket.is_last():
            # By then nothing is left to compute. DDP's own callback, which waits for the futures,
            # is queued after this one.
            torch.autograd.Variable._execution_engine.queue_callback(self._end)
        return done

    def _end(self) -> None:
        sent, self._sent = self._sent, []
        for work, flat, done in sent:
            try:
                if self._failure is None:
                    breakable.wait(work)
            except RuntimeError as error:
                self._failure = error
            done.set_result(flat)

    def check(self) -> None:
        """Raise what went wrong in the backward pass that has just ended.

        By way of the future it would come in words about a callback.

        Raises:
            RuntimeError: the gradients are of no use.
        """
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


class StreamAverage(Average):
    """The same of gradients on a GPU, whose streams do the waiting; always timed."""

    def combine(self, _: None, bucket: dist.GradBucket) -> Future[Tensor]:
        flat, tools = bucket.buffer(), self.tools
        flat *= self._share
        begun = tools.now()
        work = dist.all_reduce(flat, async_op=True)
        assert work is not None

        def ended(averaged: Future[list[Tensor]]) -> Tensor:
            try:
                (result,) = averaged.value()
            except RuntimeError as error:
                self._failure = error
                return flat
            tools.sent(begun, tools.now())
            return result

        returned: Future[Tensor] = work.get_future().then(ended)
        return returned


def average_on(device: torch.device, *, timed: bool) -> Average:
    return StreamAverage() if device.type == "cuda" else Average(timed=timed)
