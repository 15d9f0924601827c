"""The interface of all strategies: the training loop knows no other."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from trainhall.distributed import breakable
from trainhall.parallelism.degrees import Degrees

Loss = Callable[[nn.Module, Any], tuple[Tensor, tuple[Tensor, ...]]]
"""The mean loss of a model over a batch, and the means of other measures."""


class NoGradientError(RuntimeError):
    """A parameter takes no part in the loss."""


@dataclass(frozen=True)
class Tools:
    """The training loop's functions that a strategy needs while it computes gradients."""

    autocast: Callable[[], AbstractContextManager[Any]]
    """Around every forward pass."""
    scale: Callable[[Tensor], Tensor]
    """Applied to a loss before its backward pass."""
    forward_ended: Callable[[], None]
    backward_ended: Callable[[], None]
    communication_ended: Callable[[], None]
    measures: int = 0
    """The number of other measures that a loss comes with."""
    now: Callable[[], Any] = lambda: None
    """A moment, on a GPU that of the current stream; may be called from any thread."""
    sent: Callable[[Any, Any], None] = lambda begun, ended: None
    """Called with the moments between which gradients were on their way to other ranks, of each
    part of them and from any thread, before `communication_ended`."""
    sending_unmeasured: Callable[[], None] = lambda: None
    """Sending is not measured in this step."""
    waited: Callable[[Any, Any], None] = lambda begun, ended: None
    """Called with the moments between which the rank did nothing but wait for others, since the
    last of `forward_ended`, `backward_ended` and `communication_ended`."""
    compressed: Callable[[Any, Any], None] = lambda begun, ended: None
    """Likewise called with the moments between which gradients were compressed and decompressed."""
    shard_begins: Callable[[int], None] = lambda _: None
    """Called before the passes of a logical shard, where there are such, and before the loss of a
    pipeline's micro-batch is asked for something: seeds what they draw. The number is that of the
    shard or the micro-batch in the global batch."""


class Strategy(ABC):
    """A model spread over the ranks. Its methods are called by all ranks, in the same order.

    Attributes:
        degrees: the mesh of ranks.
        samples: which of the `num_parts` parts of every batch this rank reads; None: none.
        held: how many parts it reads, one after the other, `samples` being the first.
        model: this rank's part of the model; names are those of the plain model.
        called: what a loss calls: the model or its wrapper.
        parameters: what the optimizer updates, by name: this rank's share of each trained
            parameter as a plain one, in the memory of `model`'s own.
        averages: the last backward pass of a step ends with communication.
        reports_sending: it calls `Tools.sent` wherever something is sent while this rank computes,
            or else `Tools.sending_unmeasured`.
        compresses: it calls `Tools.compressed` as well.
        replicated: every rank holds the whole model, so rank 0 alone can save it.
        stream: which of the independent sequences of random numbers this rank draws from.
        expected_bubble: the share of a step in which the ranks of a pipeline must wait for others;
            None without a pipeline.
        evaluates_together: a forward pass involves other ranks even in evaluation.
        step: finished optimizer steps, if the strategy counts them.
    """

    degrees: Degrees
    samples: int | None
    stream: int
    model: nn.Module
    called: nn.Module
    parameters: dict[str, nn.Parameter]
    averages = True
    reports_sending = False
    compresses = False
    replicated = True
    evaluates_together = False
    step = 0
    expected_bubble: float | None = None
    held = 1
    accumulated: Callable[[nn.Parameter], None] | None = None
    """Called, if set, with each parameter to whose gradient a backward pass has
    added without autograd's hooks."""

    @property
    def num_parts(self) -> int:
        """Equal parts of every batch, of which this rank reads `held` from `samples` on."""
        return self.degrees.samples

    def gradients(
        self, batches: Iterable[Any], loss_of: Loss, tools: Tools, *, rounds: int
    ) -> list[Tensor]:
        """Compute the gradient of a global batch: `rounds` micro-batches on this rank.

        Returns:
            The means of the loss and the other measures over what this rank reads. Their mean over
            all ranks is the job's.
        """
        means: list[Tensor] = []
        for round_, batch in enumerate(batches, start=1):
            measured = self.backward(batch, loss_of, tools, rounds=rounds, last=round_ == rounds)
            means = [a + b for a, b in zip(means, measured, strict=True)] if means else measured
        return [value / rounds for value in means] if rounds > 1 else means

    def backward(
        self, batch: Any, loss_of: Loss, tools: Tools, *, rounds: int, last: bool
    ) -> list[Tensor]:
        """Add a micro-batch to the gradient; the last of `rounds` completes the mean over ranks.

        Returns:
            The means of the loss and the other measures over this rank's micro-batch. Their mean
            over all ranks is the job's.
        """
        with nullcontext() if last else self.local_gradients():
            with tools.autocast():
                loss, measures = loss_of(self.called, batch)
            tools.forward_ended()
            scaled = tools.scale(loss / rounds if rounds > 1 else loss)
            if last and self.averages:
                self._backward_and_average(scaled, tools)
            else:
                scaled.backward()
                tools.backward_ended()
        return [value.detach() for value in (loss, *measures)]

    def _backward_and_average(self, loss: Tensor, tools: Tools) -> None:
        """Run a backward pass that averages gradients over the ranks as they appear.

        The engine's callbacks run in the order they were queued: ours, queued when the backward
        pass begins, runs when the last gradient is there and before the strategy's waits for the
        network. So what remains until `backward` returns is communication that nothing hid.
        """

        def queue(_: Tensor) -> None:
            torch.autograd.Variable._execution_engine.queue_callback(tools.backward_ended)

        loss.register_hook(queue)
        loss.backward()
        self.average_gradients()
        tools.communication_ended()

    def local_gradients(self) -> AbstractContextManager[None]:
        """Accumulate only in backward passes within it; the next outside averages over ranks.

        Most exchange no gradients before the last pass has ended.
        """
        return nullcontext()

    def average_gradients(self) -> None:  # noqa: B027 - some are complete by then
        """Complete the gradients of `parameters` once the last backward pass has ended."""

    @abstractmethod
    def clip(self, largest: float | None) -> Tensor:
        """Clip the gradient in place to `largest`; return the global L2 norm before, a scalar."""

    def clear_gradients(self) -> None:
        """Forget the gradients of a finished step."""
        for parameter in self.accumulating().values():
            parameter.grad = None

    @property
    def sent_bytes(self) -> int | None:
        """Bytes that this rank sends in a step to combine gradients; None: they are not counted."""
        return None

    def finish_step(self, tools: Tools) -> None:  # noqa: B027 - most ranks update what they use
        """Bring the weights, after the optimizer's step, to where they are computed with."""

    @abstractmethod
    def share_buffers(self) -> None:
        """Give every rank the same buffers, such as the running statistics of batch norm.

        While training each rank's come from samples of its own, and the first rank's count.
        """

    @property
    def evaluated(self) -> nn.Module:
        """Module that a loss calls in evaluation, with each rank's own samples."""
        return self.model

    def end_evaluation(self) -> None:  # noqa: B027 - most leave nothing
        """Free what forward passes without a backward pass have left."""

    def accumulating(self) -> dict[str, nn.Parameter]:
        """Return, by the plain model's names, the parameters that gradients add to here.

        They are the model's own, and so not always those of `parameters`.
        """
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    def copies(self, name: str) -> int:
        """Return the number of ranks that hold the same elements of `parameters[name]`."""
        return self.degrees.world_size

    def sync_state(self) -> dict[str, Tensor]:
        """Return the state of this rank's gradient compression; by reference."""
        return {}

    def load_sync_state(self, state: Mapping[str, Tensor]) -> None:  # noqa: B027 - most keep none
        """Resume from what `sync_state` gave, as far as the compression has a use for it."""

    def add_pending_residual(self, gradients: Mapping[str, Tensor]) -> bool:
        """Add these, in place of earlier ones, to the gradients of `parameters` of the next step
        taken, alike on all ranks; return False if this strategy cannot."""
        return False

    def pending_residual(self) -> dict[str, Tensor]:
        """Return the part of `add_pending_residual` that no step has been taken with yet."""
        return {}

    def clear_pending_residual(self) -> None:  # noqa: B027 - most have none
        """Forget the pending residual: a step was taken with it."""

    def like_parameter(self, name: str, state: Tensor) -> Tensor:
        """Return an optimizer's tensor for `parameters[name]` as its part of the whole model."""
        return state

    def full_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the plain model's state dict, entry by entry in sorted order of names."""
        return self.whole(sorted(self.model.state_dict().items()))

    def full_gradients(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the gradient of every trained parameter, in sorted order of names."""
        return self.whole(
            (name, self.like_parameter(name, parameter.grad))
            for name, parameter in sorted(self.parameters.items())
            if parameter.grad is not None
        )

    def whole(self, parts: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """Yield named tensors, of which this rank may have parts or none, one by one whole.

        Args:
            parts: in sorted order of names.
        """
        for name, tensor in parts:
            yield name, tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def clip_gradients(parameters: Sequence[nn.Parameter], largest: float | None, norm: Tensor) -> None:
    """Scale the gradients of `norm` down to `largest`, in place."""
    if largest is not None:
        torch.nn.utils.clip_grads_with_norm_(parameters, largest, norm, foreach=True)


def share_weights(model: nn.Module) -> None:
    """Give all ranks rank 0's weights and buffers, whatever each of them drew."""
    if dist.get_world_size() > 1:
        breakable.broadcast([*model.parameters(), *model.buffers()], 0)
