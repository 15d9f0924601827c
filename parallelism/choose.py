"""The strategy that a job asks for, applied to its model."""

from dataclasses import dataclass

import torch
from torch import nn

from trainhall.parallelism import layers, parameter_server
from trainhall.parallelism.data_parallel.ddp import Replicas
from trainhall.parallelism.data_parallel.fsdp import FullyShardedData
from trainhall.parallelism.data_parallel.gradient_sync import NATIVE, SyncOptions
from trainhall.parallelism.data_parallel.hook import HookedReplicas
from trainhall.parallelism.data_parallel.logical_shards import LogicalShards
from trainhall.parallelism.declaration import Declaration, check
from trainhall.parallelism.degrees import Degrees, Schedule, StrategyName
from trainhall.parallelism.mesh import Mesh
from trainhall.parallelism.parts import Divided
from trainhall.parallelism.pipelining.pipeline import Pipeline
from trainhall.parallelism.strategy import Strategy
from trainhall.parallelism.tensor import TensorParallel


@dataclass(frozen=True)
class Asked:
    """The strategy that a job asks for; the names are those of the spec."""

    strategy: StrategyName
    degrees: Degrees
    bucket_mb: float
    reshard_after_forward: bool
    sequence_parallel: bool
    schedule: Schedule
    microbatches: int
    logical_shards: int | None = None
    """Given in reproducible mode alone."""
    gradient_sync: SyncOptions = NATIVE
    recompute: bool = False
    """Activation checkpointing."""
    compile: bool = False
    low_precision: torch.dtype | None = None
    """The type that autocast computes in; None: that of the weights."""


def apply(
    asked: Asked, model: nn.Module, declaration: Declaration, device: torch.device
) -> Strategy:
    """Spread a plain model over the ranks of the default process group.

    Args:
        model: in host memory or on the device, with equal shapes on all ranks.

    Raises:
        DegreesError: the model does not allow it.
    """
    check(
        declaration,
        asked.degrees,
        sequence_parallel=asked.sequence_parallel,
        schedule=asked.schedule,
    )
    model = model.to(device)
    if asked.compile:
        layers.compile_layers(model, declaration)
    if asked.recompute:
        layers.recompute(model, declaration)
    match asked.strategy:
        case "ddp":
            if asked.logical_shards is not None:
                return LogicalShards(
                    model, device=device, bucket_mb=asked.bucket_mb, shards=asked.logical_shards
                )
            if not asked.gradient_sync.is_native:
                return HookedReplicas(
                    model, asked.gradient_sync, device=device, bucket_mb=asked.bucket_mb
                )
            return Replicas(model, device=device, bucket_mb=asked.bucket_mb)
        case "parameter_server":
            return parameter_server.join(model, asked.degrees, device)
    strategy = divided(asked, model, declaration, Mesh(asked.degrees, device), device)
    if device.type == "cpu" and not asked.compile:  # hooks would cut compiled layers apart
        strategy.measure_waits(declaration, sequence_parallel=asked.sequence_parallel)
    return strategy


def divided(
    asked: Asked, model: nn.Module, declaration: Declaration, mesh: Mesh, device: torch.device
) -> Divided:
    """Divide a model among the ranks of a mesh, under a strategy that does so."""
    sequence_parallel = asked.sequence_parallel
    if asked.strategy == "fsdp":
        return FullyShardedData(
            model,
            declaration,
            mesh,
            reshard=asked.reshard_after_forward,
            sequence_parallel=sequence_parallel,
            low_precision=asked.low_precision,
        )
    if asked.strategy == "tensor":
        return TensorParallel(model, declaration, mesh, sequence_parallel=sequence_parallel)
    return Pipeline(
        model,
        declaration,
        mesh,
        device,
        schedule=asked.schedule,
        microbatches=asked.microbatches,
        sequence_parallel=sequence_parallel,
    )
