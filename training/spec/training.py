"""Training options of a task: parallelism, optimisation, data."""

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import (
    Field,
    model_validator,
)

from trainhall.parallelism.data_parallel.gradient_sync import (
    Algorithm,
    CompressionName,
    SyncOptions,
)
from trainhall.parallelism.degrees import (
    Schedule,
    StrategyName,
)
from trainhall.training.spec.base import SpecModel
from trainhall.training.spec.problems import problem_at
from trainhall.training.spec.resources import MAX_WORKERS

AskedStrategy = Literal[StrategyName, "auto"]


class Precision(StrEnum):
    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"


class GradientSync(SpecModel):
    """Method by which ranks combine their gradients."""

    algorithm: Algorithm = "native"
    """`native` is the all-reduce of the backend (NCCL, Gloo). The others are described in
    docs/collectives.md and need `ddp`."""
    compression: CompressionName = "none"
    """Compression of the gradients that are sent (docs/compression.md); needs `ddp`."""
    ratio: Annotated[float, Field(gt=0, le=1)] | None = None
    """`topk` and `powersgd`: fraction of a gradient's values that is sent. Default: 0.01."""
    bucket_mb: Annotated[float, Field(gt=0, le=4096)] = 25.0
    """Size of DDP's gradient buckets, in MiB."""
    measure_links: bool = False
    """Measure the links between ranks after the first step, and report in an event what each
    compression would save per step (docs/compression.md); needs `ddp`."""

    def options(self, servers: int | None = None) -> SyncOptions:
        """The same without torch's part, and with the `servers` that belong to an algorithm."""
        theirs = servers if self.algorithm == "parameter_server" else None
        return SyncOptions(self.algorithm, self.compression, self.ratio, theirs)


class ParallelismSpec(SpecModel):
    """Distribution of a task's model over the ranks (docs/strategies.md).

    The degrees of a strategy multiply to the number of workers; you may leave one out.
    """

    strategy: AskedStrategy = "ddp"
    """`ddp`: every rank holds the whole model. `fsdp`: ranks shard weights, gradients and optimizer
    state. `tensor`: ranks compute each layer together. `pipeline`: each rank holds some layers, and
    micro-batches pass through them. `model`: the same with one batch at a time.
    `parameter_server`: some ranks hold weights and optimizer, the others compute gradients.
    `auto`: the planner picks the fastest strategy and degrees that fit the devices
    (docs/plan.md)."""
    data: Annotated[int, Field(ge=1, le=MAX_WORKERS)] | None = None
    """Copies of the model, each trained on different samples. Default: the number of workers under
    `ddp`, else 1."""
    shard: Annotated[int, Field(ge=1, le=MAX_WORKERS)] | None = None
    """`fsdp`: ranks that shard one copy's weights. Default: all that `data` and `tensor` leave."""
    tensor: Annotated[int, Field(ge=1, le=MAX_WORKERS)] | None = None
    """`tensor`, `fsdp` and `pipeline`: ranks that compute each layer together, on the same samples.
    Default: all that `data` leaves under `tensor`, else 1."""
    sequence_parallel: bool = False
    """With `tensor` above 1: split the activations between a transformer's layers by position."""
    pipeline: Annotated[int, Field(ge=1, le=MAX_WORKERS)] | None = None
    """`pipeline` and `model`: ranks (stages) that hold consecutive layers of a copy. Default: all
    that `data` and `tensor` leave."""
    schedule: Schedule = "1f1b"
    """`pipeline`: order in which ranks process micro-batches. All but `gpipe` and `1f1b` give each
    rank two stages."""
    microbatches: Annotated[int, Field(ge=1, le=65536)] | None = None
    """`pipeline`: parts into which a rank's batch is split; at least the number of ranks in the
    pipeline, which is the default."""
    reshard_after_forward: bool = True
    """`fsdp`: free a layer's gathered weights between its forward and backward pass. `false` keeps
    them: more memory, a third less communication."""
    servers: Annotated[int, Field(ge=1, le=MAX_WORKERS)] | None = None
    """`parameter_server`: workers that are servers; the others train. Default: 1. Under `ddp` with
    the algorithm of that name the servers also train; default: one per host."""
    gradient_sync: GradientSync = GradientSync()


class LearningRateSchedule(SpecModel):
    """Learning rate over the steps: linear warm-up, then `constant`, `cosine` or `step` decay."""

    kind: Literal["constant", "cosine", "step"] = "constant"
    warmup_steps: Annotated[int, Field(ge=0, le=10**12)] = 0
    """Steps of linear warm-up from zero to `learning_rate`."""
    final_ratio: Annotated[float, Field(ge=0, le=1)] = 0.0
    """`cosine`: final rate as a fraction of `learning_rate` (Loshchilov & Hutter,
    arXiv:1608.03983)."""
    decay_every: Annotated[int, Field(ge=1, le=10**12)] | None = None
    """`step`: multiply the rate by `decay_factor` every N steps after the warm-up."""
    decay_factor: Annotated[float, Field(gt=0, le=1)] = 0.1
    """`step`: factor for the rate."""

    @model_validator(mode="after")
    def _step_needs_interval(self) -> Self:
        if self.kind == "step" and self.decay_every is None:
            raise problem_at(
                "decay_every", None, "is required for kind step; give a number of steps"
            )
        return self


class TrainingSpec(SpecModel):
    steps: Annotated[int, Field(ge=1, le=10**12)] | None = None
    """Optimizer steps to train for. Give this or `epochs`."""
    epochs: Annotated[int, Field(ge=1, le=10**9)] | None = None
    """Passes over the training set; each drops its last partial batch. Give this or `steps`."""
    global_batch_size: Annotated[int, Field(ge=1, le=2**31)] = 64
    """Samples per optimizer step, over all ranks and accumulation steps."""
    optimizer: Literal["sgd", "adamw"] = "adamw"
    learning_rate: Annotated[float, Field(gt=0, le=1e6)] = 1e-3
    """Learning rate after the warm-up."""
    learning_rate_schedule: LearningRateSchedule = LearningRateSchedule()
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Momentum of `sgd`."""
    weight_decay: Annotated[float, Field(ge=0, le=1e3)] = 0.0
    precision: Precision = Precision.FP32
    """`bf16` and `fp16`: mixed precision; weights stay in float32."""
    gradient_accumulation: Annotated[int, Field(ge=1, le=65536)] = 1
    """Accumulation steps per optimizer step: micro-batches per rank, or per logical shard with
    `reproducible`."""
    activation_checkpointing: Literal["none", "full"] = "none"
    """`full`: keep only each layer's input and recompute the layer in the backward pass: less
    memory, about a third more time. Applies to layers made of several modules, such as those of a
    GPT or ResNet."""
    compile: bool = False
    """Compile these layers with `torch.compile`; nodes need a C++ compiler."""
    gradient_clip: Annotated[float, Field(gt=0, le=1e9)] | None = None
    """Maximum global L2 norm of the gradient; larger gradients are scaled down."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of initial weights, sample order, augmentation and dropout."""
    reproducible: bool = False
    """Bit-identical results on any number of workers and across pauses, crashes and resizes
    (docs/reproducible.md). For tasks under `ddp`."""
    logical_shards: Annotated[int, Field(ge=1, le=MAX_WORKERS)] = 4
    """`reproducible`: equal parts of the global batch, distributed over the workers; at least the
    number of workers. The results depend on it."""
    evaluate_every_steps: Annotated[int, Field(ge=1, le=10**12)] | None = None
    """Run validation every N steps; it always runs at the end."""
    capture_gradients_every_steps: Annotated[int, Field(ge=1, le=10**12)] | None = None
    """Record the gradient norm of each parameter every N steps (docs/gradients.md). Default: only
    on request."""
    data_workers: Annotated[int, Field(ge=0, le=256)] | None = None
    """Processes per rank that load batches; 0 loads them in the rank itself. Default: 0 for data in
    memory, else the rank's share of the cores minus one, between 1 and 8."""
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
