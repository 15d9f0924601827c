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
class StrategyConfig:
    """A job's strategy and its options; the names are those of the spec."""

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
    config: StrategyConfig, model: nn.Module, declaration: Declaration, device: torch.device
) -> Strategy:
    """Spread a plain model over the ranks of the default process group.

    Args:
        model: in host memory or on the device, with equal shapes on all ranks.

    Raises:
        DegreesError: the model does not allow it.
    """
    check(
        declaration,
        config.degrees,
        sequence_parallel=config.sequence_parallel,
        schedule=config.schedule,
    )
    model = model.to(device)
    if config.compile and compiles_whole(config, declaration):
        layers.compile_whole(model)
    elif config.compile:
        layers.compile_layers(model, declaration)
    if config.recompute:
        layers.recompute(model, declaration)
    match config.strategy:
        case "ddp":
            if config.logical_shards is not None:
                return LogicalShards(
                    model, device=device, bucket_mb=config.bucket_mb, shards=config.logical_shards
                )
            if not config.gradient_sync.is_native:
                return HookedReplicas(
                    model, config.gradient_sync, device=device, bucket_mb=config.bucket_mb
                )
            return Replicas(model, device=device, bucket_mb=config.bucket_mb)
        case "parameter_server":
            return parameter_server.join(model, config.degrees, device)
    strategy = divided(config, model, declaration, Mesh(config.degrees, device), device)
    if device.type == "cpu" and not config.compile:  # hooks would cut compiled layers apart
        strategy.measure_waits(declaration, sequence_parallel=config.sequence_parallel)
    return strategy


def compiles_whole(config: StrategyConfig, declaration: Declaration) -> bool:
    """Return whether nothing acts between the layers that compiling them together would delay."""
    if config.recompute or config.strategy not in ("ddp", "parameter_server"):
        return False
    # Several copies average the gradients of a layer while the backward pass is at the next one.
    averages = config.strategy == "ddp" and config.degrees.data > 1
    return not averages or not declaration.layers


def divided(
    config: StrategyConfig,
    model: nn.Module,
    declaration: Declaration,
    mesh: Mesh,
    device: torch.device,
) -> Divided:
    """Divide a model among the ranks of a mesh, under a strategy that does so."""
    sequence_parallel = config.sequence_parallel
    if config.strategy == "fsdp":
        return FullyShardedData(
            model,
            declaration,
            mesh,
            reshard=config.reshard_after_forward,
            sequence_parallel=sequence_parallel,
            low_precision=config.low_precision,
        )
    if config.strategy == "tensor":
        return TensorParallel(model, declaration, mesh, sequence_parallel=sequence_parallel)
    return Pipeline(
        model,
        declaration,
        mesh,
        device,
        schedule=config.schedule,
        microbatches=config.microbatches,
        sequence_parallel=sequence_parallel,
    )
