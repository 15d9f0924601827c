"""Counts the floating-point operations of a training step on tensors without memory."""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from trainhall.parallelism.strategy import Loss


def forward_and_backward_flops(model: nn.Module, loss_of: Loss, batch: Any) -> int:
    """Count operations of one forward and backward pass of a plain model over a batch.

    Matrix products, convolutions and attention count, a multiplication and an addition as two; what
    works element by element does not, as is the custom for model FLOP utilisation. Nothing is
    computed: the weights and the batch are replaced by tensors that have no memory, so model, batch
    and random numbers stay as they are.

    Raises:
        Exception: whatever the model raises that reads values of tensors on its way.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with FakeCopyMode(mode):
        model = copy.deepcopy(model)
    batch = tree_map_only(Tensor, mode.from_tensor, batch)
    # Ranks that regroup in place have the model on its device before, and batches are read into
    # host memory.
    device = next(iter(model.parameters())).device
    with mode:
        batch = tree_map_only(Tensor, lambda tensor: tensor.to(device), batch)
    # Inside the mode it sees real operators, outside of it only those of real tensors.
    with mode, counter() as counted:
        loss, _ = loss_of(model, batch)
        loss.backward()
    return int(counted.get_total_flops())


def counter() -> FlopCounterMode:
    """Count the operations of what runs within it, attention alike on every device.

    That a fused attention computes its scores again in the backward pass is not counted.
    """
    aten = torch.ops.aten
    mapping: dict[Any, Any] = {aten._scaled_dot_product_flash_attention_for_cpu: _attention}
    for name in ("flash_attention", "flash_attention_for_cpu", "efficient_attention",
                 "cudnn_attention"):  # fmt: skip
        mapping[getattr(aten, f"_scaled_dot_product_{name}_backward")] = _attention_backward
    return FlopCounterMode(display=False, custom_mapping=mapping)


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Count attention's operations; the arguments are shapes here."""
    return int(sdpa_flop_count(query, key, value))


def _attention_backward(_: Any, query: Any, key: Any, value: Any, *__: Any, **___: Any) -> int:
    return 2 * int(sdpa_flop_count(query, key, value))
