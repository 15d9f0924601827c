"""The strategy that a job asks for, applied to its model."""

import torch
from torch import nn

from trainhall.parallelism.ddp import Replicas
from trainhall.parallelism.declaration import Declaration
from trainhall.parallelism.degrees import Degrees, StrategyName
from trainhall.parallelism.fsdp import FullyShardedData
from trainhall.parallelism.mesh import Mesh
from trainhall.parallelism.strategy import Strategy


def apply(
    name: StrategyName,
    model: nn.Module,
    declaration: Declaration,
    degrees: Degrees,
    device: torch.device,
    *,
    bucket_mb: float,
    reshard: bool,
) -> Strategy:
    """Spread a plain model over the ranks of the default process group.

    Args:
        model: in host memory or on the device, with equal shapes on all ranks.
        bucket_mb: of `ddp.apply`.
        reshard: of `FullyShardedData`.
    """
    model = model.to(device)
    match name:
        case "ddp":
            return Replicas(model, device=device, bucket_mb=bucket_mb)
        case "fsdp":
            return FullyShardedData(model, declaration, Mesh(degrees, device), reshard=reshard)
