"""Training options of a task: parallelism, optimisation, data."""

from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from trainhall.parallelism.data_parallel.gradient_sync import (
    Algorithm,
    CompressionName,
    SyncOptions,
)
from trainhall.parallelism.degrees import Degrees, Schedule, StrategyName, solve
from trainhall.training.spec.base import SpecModel
from trainhall.training.spec.problems import problem_at
from trainhall.training.spec.resources import MAX_WORKERS

AskedStrategy = Literal[StrategyName, "auto"]


class NotPlannedError(RuntimeError):
    """The strategy is `auto`, and no plan was made yet."""

    def __init__(self) -> None:
        super().__init__("parallelism.strategy is auto, and no plan was made yet")


class Precision(StrEnum):
    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"


class GradientSync(SpecModel):
    """Method of averaging gradients over ranks."""

    algorithm: Algorithm = "native"
    """`native`: the backend's all-reduce (NCCL, Gloo). The others (docs/collectives.md) need
    `ddp`."""
    compression: CompressionName = "none"
    """Compression of sent gradients (docs/compression.md); needs `ddp`."""
    ratio: Annotated[float, Field(gt=0, le=1)] | None = None
    """`topk`, `powersgd`: fraction of a gradient's values that is sent. Default: 0.01."""
    bucket_mb: Annotated[float, Field(gt=0, le=4096)] = 25.0
    """Size of DDP's gradient buckets, in MiB."""
    measure_links: bool = False
    """Measure links after the first step, and report in an event what each compression would save;
    needs `ddp`."""

    def options(self, servers: int | None = None) -> SyncOptions:
        """Return the same without torch's part, with the `servers` that belong to an algorithm."""
        theirs = servers if self.algorithm == "parameter_server" else None
        return SyncOptions(self.algorithm, self.compression, self.ratio, theirs)


class ParallelismSpec(SpecModel):
    """Distribution of a task's model over the ranks (docs/strategies.md).

    Degrees multiply to the number of workers; you may leave one out.
    """

    strategy: AskedStrategy = "ddp"
    """`ddp`: every rank holds the whole model. `fsdp`: ranks shard weights, gradients and optimizer
    state. `tensor`: ranks compute each layer together. `pipeline`: micro-batches pass through ranks
    that hold some layers each. `model`: the same, one batch at a time. `parameter_server`: some
    ranks hold weights and optimizer, the others compute gradients. `auto`: the fastest that fits
    (docs/plan.md)."""
    data: Annotated[int, Field(ge=1, le=MAX_WORKERS)] | None = None
    """Copies of the model, each with its own samples. Default: under `ddp` the number of workers,
    else 1."""
    shard: Annotated[int, Field(ge=1, le=MAX_WORKERS)] | None = None
    """`fsdp`: ranks that shard a copy. Default: all that `data` and `tensor` leave."""
    tensor: Annotated[int, Field(ge=1, le=MAX_WORKERS)] | None = None
    """`tensor`, `fsdp`, `pipeline`: ranks that compute each layer together. Default: under `tensor`
    all that `data` leaves, else 1."""
    sequence_parallel: bool = False
    """With `tensor` above 1: also split activations between a transformer's layers."""
    pipeline: Annotated[int, Field(ge=1, le=MAX_WORKERS)] | None = None
    """`pipeline`, `model`: ranks that share a copy by layers. Default: all that `data` and `tensor`
    leave."""
    schedule: Schedule = "1f1b"
    """`pipeline`: order of the micro-batches. All but `gpipe` and `1f1b` give each rank two
    stages."""
    microbatches: Annotated[int, Field(ge=1, le=65536)] | None = None
    """`pipeline`: parts of a rank's batch; default and minimum: the ranks of the pipeline."""
    reshard_after_forward: bool = True
    """`fsdp`: free gathered weights between forward and backward pass. `false`: more memory, a
    third less communication."""
    servers: Annotated[int, Field(ge=1, le=MAX_WORKERS)] | None = None
    """`parameter_server`: workers that are servers and do not train. Default: 1. With the algorithm
    of that name they also train; default: one per host."""
    gradient_sync: GradientSync = GradientSync()
    predict: bool = False
    """Predict memory and step time before the first attempt, as for `auto`; jobs of a benchmark do
    (docs/plan.md)."""

    def degrees_on(self, workers: int) -> Degrees:
        """Return the mesh of so many ranks.

        Raises:
            NotPlannedError: the strategy is `auto`, for which no plan was made yet.
            DegreesError: the degrees make no mesh of them.
        """
        if self.strategy == "auto":
            raise NotPlannedError
        given = {
            "data": self.data,
            "shard": self.shard,
            "tensor": self.tensor,
            "pipeline": self.pipeline,
        }
        adds_up = self.strategy == "ddp" and self.gradient_sync.algorithm == "parameter_server"
        return solve(self.strategy, workers, given, None if adds_up else self.servers)


class LearningRateSchedule(SpecModel):
    """Linear warm-up, then `constant`, `cosine` or `step` decay."""

    kind: Literal["constant", "cosine", "step"] = "constant"
    warmup_steps: Annotated[int, Field(ge=0, le=10**12)] = 0
    """Steps from zero to `learning_rate`; a job that ends before does not reach it."""
    final_ratio: Annotated[float, Field(ge=0, le=1)] = 0.0
    """`cosine`: final fraction of `learning_rate` (Loshchilov & Hutter, arXiv:1608.03983)."""
    decay_every: Annotated[int, Field(ge=1, le=10**12)] | None = None
    """`step`: multiply the rate every N steps after the warm-up."""
    decay_factor: Annotated[float, Field(gt=0, le=1)] = 0.1
    """`step`: factor of each decay."""

    @model_validator(mode="after")
    def _step_needs_interval(self) -> Self:
        if self.kind == "step" and self.decay_every is None:
            raise problem_at(
                "decay_every", None, "is required for kind step; give a number of steps"
            )
        return self


PositiveStep = Annotated[int, Field(ge=1, le=10**12)]


class TrainingSpec(SpecModel):
    steps: Annotated[int, Field(ge=1, le=10**12)] | None = None
    """Optimizer steps. Give this or `epochs`."""
    epochs: Annotated[int, Field(ge=1, le=10**9)] | None = None
    """Passes over the training set, each without its last partial batch. Default: 1 without
    `steps`."""
    global_batch_size: Annotated[int, Field(ge=1, le=2**31)] = 64
    """Samples per optimizer step over all ranks; divisible by workers × `gradient_accumulation`."""
    optimizer: Literal["sgd", "adamw"] = "adamw"
    learning_rate: Annotated[float, Field(gt=0, le=1e6)] = 1e-3
    """Rate after the warm-up."""
    learning_rate_schedule: LearningRateSchedule = LearningRateSchedule()
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Momentum of `sgd`."""
    weight_decay: Annotated[float, Field(ge=0, le=1e3)] = 0.0
    precision: Precision = Precision.FP32
    """`bf16`, `fp16`: mixed precision; weights stay in float32."""
    gradient_accumulation: Annotated[int, Field(ge=1, le=65536)] = 1
    """Micro-batches per rank (per logical shard with `reproducible`) and optimizer step."""
    activation_checkpointing: Literal["none", "full"] = "none"
    """`full`: recompute layers in the backward pass: less memory, a third more time. For layers of
    several modules, as in a GPT or ResNet."""
    compile: bool = False
    """Compile the model, or each of its layers, with `torch.compile`
    (docs/strategies.md); nodes need a C++ compiler."""
    gradient_clip: Annotated[float, Field(gt=0, le=1e9)] | None = None
    """Maximum global L2 norm of the gradient."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seeds initial weights, sample order, augmentation and dropout."""
    reproducible: bool = False
    """Bit-identical results on any number of workers, also after pauses, crashes and resizes
    (docs/reproducible.md); for tasks under `ddp`."""
    logical_shards: Annotated[int, Field(ge=1, le=MAX_WORKERS)] = 4
    """`reproducible`: parts of the global batch, at least one per worker. Results depend on it."""
    pause_at: Annotated[tuple[PositiveStep, ...], Field(max_length=64)] = ()
    """Steps at which the job pauses by itself, each once; with a script as well, where
    `trainhall.should_stop()` is true there."""
    evaluate_every_steps: Annotated[int, Field(ge=1, le=10**12)] | None = None
    """Validate every N steps, and always at the end."""
    capture_gradients_every_steps: Annotated[int, Field(ge=1, le=10**12)] | None = None
    """Record each parameter's gradient norm every N steps (docs/gradients.md). Default: on
    request."""
    data_workers: Annotated[int, Field(ge=0, le=256)] | None = None
    """Processes per rank that load batches; 0: the rank itself. Default: 0 for data in memory, else
    the rank's share of the cores minus one, from 1 to 8."""
    data_prefetch: Annotated[int, Field(ge=1, le=1024)] = 2
    """Batches that each data worker prefetches."""

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if self.steps is not None and self.epochs is not None:
            raise problem_at("epochs", self.epochs, "steps and epochs exclude each other; give one")
        if self.steps is None and self.epochs is None:
            # Every task needs an end; one pass over the data is what most people mean.
            object.__setattr__(self, "epochs", 1)
        return self

    @model_validator(mode="after")
    def _check_pauses(self) -> Self:
        if any(step >= later for step, later in pairwise(self.pause_at)):
            raise problem_at("pause_at", list(self.pause_at),
                "must count up, each step once",
            )  # fmt: skip
        if self.pause_at and self.steps is not None and self.pause_at[-1] >= self.steps:
            raise problem_at("pause_at", list(self.pause_at),
                f"must be below training.steps ({self.steps:,}), where the job ends",
            )  # fmt: skip
        return self
