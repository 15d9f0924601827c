"""What a job spec says of how its model is spread over ranks."""

from trainhall.parallelism.choose import Asked
from trainhall.training.precision import low_precision
from trainhall.training.spec import JobSpec


def asked_of(spec: JobSpec) -> Asked:
    """What a job asks for, once its strategy is chosen."""
    parallelism, training = spec.parallelism, spec.training
    return Asked(
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
