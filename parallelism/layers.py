"""Compiles a plain model, whole or layer by layer, and recomputes layers in the backward pass.

Only a module's own `forward` is replaced. What strategies run before and after a module (the
gathering of weights, the exchange of activations) stays around it, and names stay as they are.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from trainhall.parallelism.declaration import Declaration
from trainhall.parallelism.degrees import DegreesError

_USES = 4
"""Ways to run a module that have code of their own: training, evaluation, with whole and with last
batches."""
_ALIGNED = 8
"""Matrix products are fast where their sides are multiples of so many elements; compiled ones are
padded."""


class NoCompilerError(RuntimeError):
    """`torch.compile` has nothing to compile with on this host."""


def recompute(model: nn.Module, declaration: Declaration) -> None:
    """Keep of each layer its input alone, and run it again when its gradient is due.

    (Chen et al., "Training Deep Nets with Sublinear Memory Cost", arXiv:1604.06174.) The second
    run draws the same numbers from torch's generators (Python's and numpy's advance), and leaves
    buffers such as running statistics as they are.

    Raises:
        DegreesError: the model declares no layers.
    """
    for module in _declared(model, declaration, "activation_checkpointing"):
        if _is_composed(module):
            _replace(module, partial(_recomputed, module, module.forward))


def compile_whole(model: nn.Module) -> None:
    """Compile the whole forward pass when it first runs: kernels are fused across layers too.

    Raises:
        NoCompilerError: this host has no C++ compiler.
    """
    _compile([model])


def compile_layers(model: nn.Module, declaration: Declaration) -> None:
    """Compile each layer when it first runs; equal layers share their code.

    Raises:
        DegreesError: the model declares no layers.
        NoCompilerError: this host has no C++ compiler.
    """
    declared = _declared(model, declaration, "compile")
    _compile([module for module in declared if _is_composed(module) or _is_unaligned(module)])


def _compile(modules: list[nn.Module]) -> None:
    _check_compiler()
    # Code for one size of tensors is much faster than code for any, which torch makes where layers
    # of the same class differ in width. Layers beyond its limit would not be compiled at all.
    needed = _USES * len(modules)
    torch._dynamo.config.recompile_limit = max(needed, torch._dynamo.config.recompile_limit)
    for module in modules:
        _replace(module, torch.compile(module.forward, dynamic=False))


def _declared(model: nn.Module, declaration: Declaration, field: str) -> list[nn.Module]:
    if not declaration.layers:
        raise DegreesError(
            field,
            f"training.{field} acts on layers, but the model declares none; declare them in "
            "the task (docs/strategies.md), or leave it out",
        )
    return [model.get_submodule(name) for layer in declaration.layers for name in layer]


def _is_composed(module: nn.Module) -> bool:
    """Return whether a module is made of others; most single operators have nothing to gain."""
    return any(True for _ in module.children())


def _is_unaligned(module: nn.Module) -> bool:
    """Return whether it is a matrix product that gains from padding, as over 50,257 words."""
    return isinstance(module, nn.Linear) and module.out_features % _ALIGNED != 0


def _replace(module: nn.Module, forward: Callable[..., Any]) -> None:
    module.forward = forward


def _recomputed(module: nn.Module, forward: Callable[..., Any], *args: Any, **options: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*args, **options)
    return checkpoint(
        forward, *args, use_reentrant=False, context_fn=partial(_contexts, module), **options
    )


def _contexts(
    module: nn.Module,
) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    return nullcontext(), _BuffersKept(module)


class _BuffersKept(AbstractContextManager[None]):
    """Puts buffers back. Entered twice where gradients of inputs and weights are computed apart."""

    def __init__(self, module: nn.Module) -> None:
        self._buffers = tuple(module.buffers())

    def __enter__(self) -> None:
        self._before = [buffer.clone() for buffer in self._buffers]

    def __exit__(self, *_: object) -> None:
        # The first run's graph may have saved them, and sees that they were written to.
        with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(self._buffers):
            for buffer, kept in zip(self._buffers, self._before, strict=True):
                buffer.copy_(kept)


def _check_compiler() -> None:
    # Compiling begins with the first step, deep within torch; here the error can be explained.
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        raise NoCompilerError(
            "training.compile needs a C++ compiler, and this host has none: install g++ or clang, "
            "name one in CXX, or leave training.compile out"
        ) from None
