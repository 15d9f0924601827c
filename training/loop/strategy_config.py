"""The strategy that a job spec asks for."""

from trainhall.parallelism.choose import StrategyConfig
from trainhall.training.optim.precision import low_precision
from trainhall.training.spec import JobSpec


def strategy_config_of(spec: JobSpec) -> StrategyConfig:
    """Return a job's strategy and its options, once it is chosen."""
    parallelism, training = spec.parallelism, spec.training
    return StrategyConfig(
        strategy=spec.strategy,
        degrees=spec.degrees,
        bucket_mb=parallelism.gradient_sync.bucket_mb,
        gradient_sync=spec.gradient_sync,
        reshard_after_forward=parallelism.reshard_after_forward,
        sequence_parallel=parallelism.sequence_parallel,
        schedule=spec.schedule,
        microbatches=spec.microbatches,
        logical_shards=training.logical_shards if training.reproducible else None,
        recompute=training.activation_checkpointing == "full",
        compile=training.compile,
        low_precision=low_precision(training.precision),
    )
