"""Sharded data parallelism: weights, gradients and optimizer state are divided among the ranks.

Every rank trains on samples of its own, and holds a layer's whole weights only while it computes
with them (ZeRO-3: Rajbhandari et al., arXiv:1910.02054; FSDP: Zhao et al., arXiv:2304.11277). With
`data` > 1 the ranks are `data` groups, each with all weights divided among its own ranks, and
gradients are averaged between the groups ("hybrid sharding").
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from trainhall.parallelism import tensor
from trainhall.parallelism.declaration import Declaration
from trainhall.parallelism.mesh import Mesh
from trainhall.parallelism.parts import Divided, no_gradient
from trainhall.parallelism.strategy import Loss, NoGradientError, Tools, share_weights


class FullyShardedData(Divided):
    """A model under `fully_shard` (FSDP2), whose layers `tensor` ranks may compute together."""

    evaluates_together = True

    def __init__(
        self,
        model: nn.Module,
        declaration: Declaration,
        mesh: Mesh,
        *,
        reshard: bool,
        sequence_parallel: bool,
        low_precision: torch.dtype | None,
    ) -> None:
        """Shard the model.

        Args:
            model: on the device, with equal shapes on all ranks; rank 0's weights win.
            low_precision: of `shard`.
            reshard: free a layer's whole weights after its forward pass, and gather them again
                for its backward pass; otherwise they stay between the two.
            sequence_parallel: of `tensor.divide`.
        """
        share_weights(model)
        if mesh.degrees.tensor > 1:
            tensor.divide(model, declaration, mesh, sequence_parallel=sequence_parallel)
        shard(model, declaration, mesh, reshard=reshard, low_precision=low_precision)
        super().__init__(model, mesh)
        # One rank alone exchanges nothing.
        self._groups = _groups(model) if self.degrees.samples > 1 else []
        for group in self._groups:
            _check_before_reducing(group)

    def backward(
        self, batch: Any, loss_of: Loss, tools: Tools, *, rounds: int, last: bool
    ) -> list[Tensor]:
        """Run as `Strategy.backward`.

        Raises:
            NoGradientError: this rank has left out a layer or a parameter, and with it what the
                others exchange of it: what this rank would send next they would take for that.
        """

        for group in self._groups:
            group._post_forward_indices.clear()  # what an evaluation has left

        def checked(model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
            measured = loss_of(model, batch)
            for group in self._groups:
                if not group._post_forward_indices:
                    _raise_if_any(_trained(group))
                    _raise_if_frozen(group)
            return measured

        return super().backward(batch, checked, tools, rounds=rounds, last=last)

    @contextmanager
    def local_gradients(self) -> Iterator[None]:
        self._root.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self._root.set_requires_gradient_sync(True)

    def end_evaluation(self) -> None:
        for module in self.model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()

    @property
    def _root(self) -> FSDPModule:
        assert isinstance(self.model, FSDPModule)
        return self.model


def shard(
    model: nn.Module,
    declaration: Declaration,
    mesh: Mesh,
    *,
    reshard: bool,
    low_precision: torch.dtype | None,
) -> None:
    """Divide a model's weights, layer by layer, then what no layer has.

    Args:
        low_precision: what autocast computes in. Weights that it rounds whole are rounded before
            they are gathered, which gives the same bits for half the traffic; ranks hold and
            average them as they were.
    """
    hybrid = mesh.degrees.data > 1
    ranks = mesh.devices["data", "shard"] if hybrid else mesh.devices["shard"]
    policy = MixedPrecisionPolicy(
        param_dtype=low_precision, reduce_dtype=torch.float32, cast_forward_inputs=False
    )
    for modules in layers_apart(model, declaration):
        rounded = _rounded(modules) if low_precision is not None else []
        if rounded:
            fully_shard(rounded, mesh=ranks, reshard_after_forward=reshard, mp_policy=policy)
        rest = [module for module in modules if module not in rounded]
        if rest:
            fully_shard(rest, mesh=ranks, reshard_after_forward=reshard)
    fully_shard(model, mesh=ranks)


def _groups(model: nn.Module) -> list[Any]:
    """Return FSDP2's groups of weights that are gathered and reduced together.

    No public API reports on their gradients before they are sent.
    """
    modules = [module for module in model.modules() if isinstance(module, FSDPModule)]
    states: dict[int, Any] = {id(s): s for s in (module._get_fsdp_state() for module in modules)}
    found: list[Any] = []
    for state in states.values():
        if hasattr(state, "_fsdp_param_groups"):
            found += state._fsdp_param_groups
        elif state._fsdp_param_group is not None:  # torch before 2.13
            found.append(state._fsdp_param_group)
    return found


def _trained(group: Any) -> list[Any]:
    return [each for each in group.fsdp_params if each.sharded_param.requires_grad]


def _raise_if_any(absent: list[Any]) -> None:
    if absent:
        raise no_gradient([str(each._param_fqn) for each in absent])


def _raise_if_frozen(group: Any) -> None:
    """Refuse a layer that has nothing to train and was not called: its weights are gathered by all
    ranks together, and what this rank gathers next others would take for them."""
    if group.fsdp_params:
        names = ", ".join(str(each._param_fqn) for each in group.fsdp_params)
        raise NoGradientError(
            f"{names} were not used by this rank in a step, and strategy fsdp gathers them from "
            "all ranks together: call the layer in every micro-batch, or leave it out of the "
            "layers of the task's declaration"
        )


def _check_before_reducing(group: Any) -> None:
    """Send a group's gradients only if all are there: none is sent for what is left out, and the
    rest would be added to other weights' gradients on other ranks."""
    reduce: Callable[..., None] = group.post_backward

    def checked(*unused: Any) -> None:
        # A layer that is called again has more to come, from its earlier calls.
        if group.reduce_grads and not group._post_forward_indices:
            _raise_if_any([each for each in _trained(group) if not _has_gradient(each)])
        reduce(*unused)

    group.post_backward = checked


def _has_gradient(parameter: Any) -> bool:
    if parameter.sharded_param.grad is not None:
        return True
    if not hasattr(parameter, "_unsharded_param"):
        return False
    accumulated = parameter.unsharded_accumulated_grad is not None
    return accumulated or parameter.unsharded_param.grad is not None


def _rounded(modules: list[nn.Module]) -> list[nn.Module]:
    """Return all of these modules whose weights autocast rounds."""
    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
    return [part for module in modules for part in module.modules() if type(part) in kinds]


def layers_apart(model: nn.Module, declaration: Declaration) -> list[list[nn.Module]]:
    """Return the modules with weights of each layer that shares none with the rest of the model."""
    users = Counter(id(p) for _, p in model.named_parameters(remove_duplicate=False))
    found = []
    for layer in declaration.layers:
        modules = [model.get_submodule(name) for name in layer]
        modules = [module for module in modules if any(True for _ in module.parameters())]
        if all(users[id(p)] == 1 for module in modules for p in module.parameters()):
            found.append(modules)
    return found
