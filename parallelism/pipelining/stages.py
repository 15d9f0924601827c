"""Cutting a model into stages, and running a stage without knowing the model's task."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainhall.parallelism.declaration import Declaration
from trainhall.parallelism.degrees import DegreesError, Schedule
from trainhall.parallelism.strategy import Loss


def cut(model: nn.Module, declaration: Declaration, number: int) -> list[list[str]]:
    """Return the module names of each of `number` stages: whole layers, with similar weights.

    A stage takes layers until it has its share of the weights that are left.

    Raises:
        DegreesError: there are weights outside the layers, so these are not the whole forward pass.
    """
    _check_declared(model, declaration)
    sizes = [
        sum(p.numel() for name in layer for p in model.get_submodule(name).parameters())
        for layer in declaration.layers
    ]
    stages: list[list[str]] = []
    at = 0
    for left in range(number, 0, -1):
        share, taken, first = sum(sizes[at:]) / left, 0, at
        while at < len(sizes) - (left - 1) and (
            left == 1 or at == first or taken + sizes[at] / 2 <= share
        ):
            taken += sizes[at]
            at += 1
        stages.append([name for layer in declaration.layers[first:at] for name in layer])
    return stages


def _check_declared(model: nn.Module, declaration: Declaration) -> None:
    inside = {
        id(p) for layer in declaration.layers for n in layer
        for p in model.get_submodule(n).parameters()
    }  # fmt: skip
    for name, parameter in model.named_parameters():
        if id(parameter) not in inside:
            raise DegreesError(
                "pipeline",
                f"{name} is in none of the layers that the model declares, so the model "
                "cannot be cut into stages; declare all layers of its forward pass",
            )


def owners_of(stages: int, ranks: int, schedule: Schedule) -> list[int]:
    """Return each stage's rank in the pipeline; ZBV's ranks hold stages r and 2p−1−r."""
    if schedule == "zbv":
        return [min(stage, stages - 1 - stage) for stage in range(stages)]
    return [stage % ranks for stage in range(stages)]


def keep_only(model: nn.Module, names: list[str]) -> None:
    """Free all modules but these, whose names stay."""
    kept = {id(inner) for name in names for inner in model.get_submodule(name).modules()}

    def prune(module: nn.Module) -> None:
        for name, child in list(module.named_children()):
            if id(child) in kept:
                continue
            if any(id(inner) in kept for inner in child.modules()):
                prune(child)
            else:
                module.register_module(name, nn.Identity())

    prune(model)


class Layers(nn.Module):
    """Modules that run one after the other."""

    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Around a forward pass that trains; evaluation brings its own."""
    trains = False
    """Within a schedule's own forward pass. It runs another one to learn the shapes, which may
    neither draw random numbers nor move the running statistics of batch norm."""
    asks_gradient = False
    """True if the output of these layers always requires its gradient, even if they are frozen
    and do not need it."""

    def __init__(self, model: nn.Module, names: list[str]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(model.get_submodule(name) for name in names)

    def forward(self, x: Any) -> Any:
        if self.trains or not self.training:
            return self._run(x)
        before = [buffer.clone() for buffer in self.buffers()]
        with torch.random.fork_rng():
            output = self._run(x)
        for buffer, kept in zip(self.buffers(), before, strict=True):
            # Through `data`: a schedule also runs backward to learn the shapes, and autograd would
            # see that what batch norm has saved was overwritten, though it makes no use of it.
            buffer.data.copy_(kept)
        return output

    def _run(self, x: Any) -> Any:
        with self.autocast() if self.training else nullcontext():
            for layer in self.layers:
                x = layer(x)
        if self.asks_gradient and torch.is_grad_enabled() and not x.requires_grad:
            x = x.detach().requires_grad_()
        return x


class Relay(nn.Module):
    """The whole model's forward pass over the ranks that hold its stages; all get the output."""

    def __init__(
        self,
        model: nn.Module,
        stages: dict[int, Layers],
        owners: list[int],
        group: dist.ProcessGroup,
        device: torch.device,
    ) -> None:
        super().__init__()
        self.model = model
        self.held = nn.ModuleList(stages.values())
        self._stages = stages
        self._owners = owners
        self._group = group
        self.device = device

    def forward(self, x: Any) -> Any:
        for stage, owner in enumerate(self._owners):
            mine = self._stages.get(stage)
            if mine is not None:
                x = mine(x)
            following = self._owners[stage + 1] if stage + 1 < len(self._owners) else None
            if following != owner:
                x = self._share(x, owner, mine is not None)
        return x

    def _share(self, x: Any, owner: int, mine: bool) -> Tensor:
        form: list[Any] = [(x.shape, x.dtype)] if mine else [None]
        dist.broadcast_object_list(form, group_src=owner, group=self._group)
        shape, dtype = form[0]
        shared = x.contiguous() if mine else torch.empty(shape, dtype=dtype, device=self.device)
        dist.broadcast(shared, group_src=owner, group=self._group)
        return shared


class _UnsupportedUse(BaseException):
    """The loss uses its model in a way that a pipeline does not support.

    Not an Exception, so that no `except Exception` of the loss catches it.
    """


class _StandIn(nn.Module):
    """A stand-in for the model that a loss is given."""

    def named_parameters(self, *_: Any, **__: Any) -> Iterator[tuple[str, nn.Parameter]]:
        raise _UnsupportedUse(
            "the loss looks at the model's parameters, but under strategies pipeline and "
            "model no rank has all of them: use training.weight_decay for a penalty, or "
            "choose another strategy"
        )


class KnownOutput(_StandIn):
    """Stands in for a model whose output of one call is known already."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self._output = output
        self._is_called = False

    def forward(self, *_: Any) -> Any:
        if self._is_called:
            raise _UnsupportedUse(
                "the loss calls the model more than once, but strategies pipeline and model "
                "can split only one call: call it once on all inputs (torch.cat, then chunk "
                "its output), or choose another strategy"
            )
        self._is_called = True
        return self._output


def loss_given(
    loss_of: Loss, output: Any, batch: Any, *, training: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return a batch's loss, as `Loss`, given the model's output for its `inputs_of`.

    Raises:
        DegreesError: it asks the model for more than that.
    """
    try:
        return loss_of(KnownOutput(output).train(training), batch)
    except _UnsupportedUse as unsupported:
        raise DegreesError("pipeline", str(unsupported)) from None


class _ModelCalled(BaseException):
    """The loss has called its model with these inputs; likewise."""

    def __init__(self, inputs: tuple[Any, ...]) -> None:
        self.inputs = inputs


class _CallRecorder(_StandIn):
    def forward(self, *inputs: Any) -> Any:
        raise _ModelCalled(inputs)


def inputs_of(loss_of: Loss, batch: Any, *, training: bool) -> tuple[Any, ...]:
    """Return the inputs of a loss's first call of its model.

    Raises:
        DegreesError: before that it asks for what there is not.
    """
    try:
        loss_of(_CallRecorder().train(training), batch)
    except _ModelCalled as call:
        return call.inputs
    except _UnsupportedUse as unsupported:
        raise DegreesError("pipeline", str(unsupported)) from None
    raise TypeError("the task's loss never calls the model, so it cannot be cut into stages")
