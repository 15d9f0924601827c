"""Measures the transit time of a pipeline rank's messages, in a step now and then.

Gloo's point-to-point work has no future and counts as done once it was waited for, so that a thread
has to wait for it. That makes an exchange of 4 KiB to 1 MiB a seventh to a third longer, too much
for every step.
"""

from concurrent.futures import Future, ThreadPoolExecutor

import torch.distributed as dist
from torch import Tensor

from trainhall.parallelism.strategy import Tools

EVERY = 32
"""One step in so many is measured."""
FIRST = 1
"""The first of them, counted from 0: in the very first step much is set up."""


class Transit:
    """Reports what one rank sends to `Tools.sent`; or, in most steps, that none does."""

    def __init__(self) -> None:
        self._steps = 0
        self._tools: Tools | None = None
        self._waiters: dict[int, ThreadPoolExecutor] = {}
        """By receiver: what is sent to one arrives in the order in which it was sent."""

    def begin(self, tools: Tools) -> None:
        """Begin a step, on all ranks of the job."""
        looks = self._steps % EVERY == FIRST
        self._steps += 1
        self._tools = tools if looks else None
        if not looks:
            tools.sending_unmeasured()

    def watch(self, sends: list[dist.P2POp]) -> list[dist.P2POp]:
        """Wrap messages about to be sent, to be given to torch instead."""
        if self._tools is not None:
            for send in sends:
                send.op = self._send
        return sends

    def _send(self, tensor: Tensor, *, group: dist.ProcessGroup, tag: int, **to: int) -> "_Sent":
        # `group_src` in a batch, where torch takes whatever is not its own `isend` to receive.
        (receiver,) = to.values()
        tools = self._tools
        assert tools is not None
        begun = tools.now()
        work = dist.isend(tensor, group=group, tag=tag, group_dst=receiver)
        assert work is not None  # only a rank outside the group has none

        def arrive() -> None:
            work.wait()
            tools.sent(begun, tools.now())

        if receiver not in self._waiters:
            self._waiters[receiver] = ThreadPoolExecutor(1, f"to rank {receiver}")
        return _Sent(self._waiters[receiver].submit(arrive))


class _Sent:
    """In place of the work that torch's schedules wait for."""

    def __init__(self, arrived: Future[None]) -> None:
        self._arrived = arrived

    def wait(self) -> None:
        """Wait for it; RuntimeError: it was not received."""
        self._arrived.result()
