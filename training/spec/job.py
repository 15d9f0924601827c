"""Models of a job spec; a spec that could not be launched is refused here, field by field."""

import difflib
import re
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from trainhall.parallelism.data_parallel.gradient_sync import (
    Algorithm,
    CompressionName,
    GradientSyncError,
    SyncOptions,
)
from trainhall.parallelism.data_parallel.gradient_sync import check as check_sync
from trainhall.parallelism.declaration import check, check_sequences
from trainhall.parallelism.degrees import (
    Degrees,
    DegreesError,
    Schedule,
    StrategyName,
    check_schedule,
    solve,
)
from trainhall.training.spec.base import Name, SpecModel, Text
from trainhall.training.spec.models import declaration_of
from trainhall.training.spec.problems import problem_at, problems_at, problems_in
from trainhall.training.spec.recovery import CheckpointSpec, MetricSpec, RecoverySpec
from trainhall.training.spec.resources import MAX_WORKERS, ResourcesSpec
from trainhall.training.spec.tasks import TASK_PARAMS, TaskParams
from trainhall.training.spec.wording import VARIABLE_NAME

SHA256 = re.compile(r"[0-9a-f]{64}")


_CLASS_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def _module_name(value: str) -> str:
    if not all(part.isidentifier() for part in value.split(".")):
        raise PydanticCustomError("module_name", "must be a module name, such as package.module")
    return value


def _program(value: str) -> str:
    if "/" in value and not PurePosixPath(value).is_absolute():
        raise PydanticCustomError(
            "program", "must be an absolute path, or a program on the host's PATH"
        )
    return value


AskedStrategy = Literal[StrategyName, "auto"]


class Precision(StrEnum):
    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"


class TaskSpec(SpecModel):
    """A built-in task or your own: model, data, loss and validation under one name."""

    name: Name
    """A built-in task, or your own class as `package.module:Class` (docs/tasks.md)."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Parameters of the task; see Built-in tasks in docs/job-spec.md. Your own class checks its
    parameters on the nodes."""

    @property
    def is_own(self) -> bool:
        """Return whether the name is a user's class."""
        return ":" in self.name

    @model_validator(mode="after")
    def _check_params(self) -> Self:
        if self.is_own:
            if not _CLASS_NAME.fullmatch(self.name):
                raise problem_at("name", self.name, "must be package.module:Class")
            return self
        params_type = TASK_PARAMS.get(self.name)
        if params_type is None:
            known = ", ".join(sorted(TASK_PARAMS))
            near = difflib.get_close_matches(self.name, TASK_PARAMS, n=1)
            raise problem_at("name", self.name,
                f"unknown task; known tasks: {known}, or your own package.module:Class"
                + (f"; did you mean {near[0]}?" if near else ""),
            )  # fmt: skip
        try:
            params_type.model_validate(self.params)
        except ValidationError as error:
            raise problems_at(
                [(("params", *loc), value, text) for loc, value, text in problems_in(error)]
            ) from None
        return self

    def parsed_params(self) -> TaskParams:
        """Return the parameters with defaults, as the task's own type."""
        return TASK_PARAMS[self.name].model_validate(self.params)


class ScriptSpec(SpecModel):
    """A script started once per rank, with the environment that `torchrun` sets."""

    path: Annotated[Text, Field(min_length=1)] | None = None
    """Path of the script: relative to `code`, or without `code` an absolute path on every node
    (`trainhall submit` and `trainhall up --demo` resolve a relative one against the spec's folder).
    Give this or `module`."""
    module: Annotated[Name, AfterValidator(_module_name)] | None = None
    """Module to run as `python -m MODULE`. Give this or `path`."""
    args: list[Text] = Field(default_factory=list, max_length=1024)
    """Arguments passed to every rank."""
    env: dict[Annotated[str, Field(pattern=VARIABLE_NAME)], Text] = Field(
        default_factory=dict, max_length=256
    )
    """Environment variables added for every rank."""
    interpreter: Annotated[Text, Field(min_length=1), AfterValidator(_program)] | None = None
    """Program that runs the script: an absolute path on every node, or a name on its PATH. Default:
    the agent's Python."""
    working_dir: Annotated[Text, Field(min_length=1)] | None = None
    """Working directory of the ranks, resolved like `path`. Default: the root of `code`, or the
    script's folder."""

    @model_validator(mode="after")
    def _one_entry(self) -> Self:
        if self.path is not None and self.module is not None:
            raise problem_at("module", self.module, "path and module exclude each other; give one")
        if self.path is None and self.module is None:
            raise problem_at("path", None, "is missing; give path or module")
        return self


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


class NotPlannedError(RuntimeError):
    """A job with strategy `auto` was asked for its strategy before it was planned."""


class JobSpec(SpecModel):
    """The document that a user submits."""

    name: Name
    """Display name; need not be unique."""
    task: TaskSpec | None = None
    """A built-in task or your own. Give exactly one of `task` and `script`."""
    script: ScriptSpec | None = None
    """A script written for `torchrun`. Give exactly one of `task` and `script`."""
    code: Annotated[Text, Field(min_length=1)] | None = None
    """Folder with the job's code, at most 64 MiB (docs/scripts.md), relative to the spec.
    `trainhall submit` uploads it and replaces it with the SHA-256 of the upload, which is what the
    coordinator accepts."""
    resources: ResourcesSpec = ResourcesSpec()
    parallelism: ParallelismSpec = ParallelismSpec()
    training: TrainingSpec = TrainingSpec()
    checkpoint: CheckpointSpec = CheckpointSpec()
    recovery: RecoverySpec = RecoverySpec()
    metric: MetricSpec | None = None
    """Main metric, shown first and in lists. Default: a validation metric (`eval_…`, `val…`) that
    the job reports, else a loss."""
    priority: Annotated[int, Field(ge=-1_000_000, le=1_000_000)] = 0
    """Higher runs first, equal ones in order of submission. Priority rises with waiting time, and
    jobs of lower priority may be preempted (docs/scheduling.md)."""
    preemption: bool = True
    """Let a job of higher priority preempt this one: pause it or take some of its workers."""
    project: Name | None = None
    """Project, for quotas."""
    user: Name | None = None
    """Owner, for quotas. `trainhall submit` fills in the login name."""

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        self._check_paths()
        if self.task is not None and self.script is not None:
            raise problem_at("script", None, "task and script exclude each other; give one")
        if self.task is None and self.script is None:
            raise problem_at("task", None, "give exactly one of task and script")
        if self.resources.is_elastic:
            self._take_the_largest()
        else:
            self._check_size()
        if self.script is not None:
            self._check_task_only()
        return self

    def _check_size(self) -> None:
        """Check everything that depends on the number of workers."""
        self._check_parallelism()
        self._check_gradient_sync()
        if self.training.reproducible:
            self._check_reproducible()
        if self.task is not None:
            self._check_batch()

    def _check_task_only(self) -> None:
        """Refuse options that a script would never see."""
        untouched = TrainingSpec()
        for name in TrainingSpec.model_fields:
            value = getattr(self.training, name)
            if value != getattr(untouched, name):
                raise problem_at(("training", name), value,
                    "is for tasks; a script does its own training: leave it out, or pass it in "
                    "script.args",
                )  # fmt: skip
        for name in ("every_steps", "every_seconds"):
            if (value := getattr(self.checkpoint, name)) is not None:
                raise problem_at(("checkpoint", name), value,
                    "is for tasks; a script saves with trainhall.checkpoint.save: leave it out",
                )  # fmt: skip

    def _take_the_largest(self) -> None:
        """Set `resources.workers` of an elastic job to the largest possible number."""
        refused: list[PydanticCustomError] = []
        for workers in reversed(self.resources.asked):
            reason = self._obstacle_at(workers)
            if reason is None:
                resources = self.resources.model_copy(update={"workers": workers})
                object.__setattr__(self, "resources", resources)
                return
            refused.append(reason)
        loc, value, message = _problem_of(refused[0])
        least, most = self.resources.asked[0], self.resources.asked[-1]
        # An error that is the same at every size does not depend on the size.
        if any(_problem_of(each) != (loc, value, message) for each in refused):
            message = (
                f"no number of workers from {least} to {most} is possible; with {most}: {message}"
            )
        raise problem_at(loc, value, message)

    def _obstacle_at(self, workers: int) -> PydanticCustomError | None:
        """Return why the job cannot have so many workers; None if it can."""
        fixed = self.model_copy(update={"resources": self.resources.at(workers)})
        try:
            fixed._check_size()
        except PydanticCustomError as error:
            return error
        return None

    @property
    def possible_workers(self) -> tuple[int, ...]:
        """Numbers of workers that the job can run with, ascending; one for a fixed job."""
        if not self.resources.is_elastic:
            return (self.resources.workers,)
        return tuple(n for n in self.resources.asked if self._obstacle_at(n) is None)

    def at(self, workers: int) -> Self:
        """Return the spec of one attempt: the same job with a fixed number of workers.

        Raises:
            ValueError: the job cannot run with this number.
        """
        if workers not in self.resources.asked or self._obstacle_at(workers) is not None:
            raise ValueError(f"a job of {self.resources.asked} workers cannot have {workers}")
        return self.model_copy(update={"resources": self.resources.at(workers)})

    @property
    def strategy(self) -> StrategyName:
        """Strategy to train under.

        Raises:
            NotPlannedError: it is `auto`, for which no plan was made yet.
        """
        if self.parallelism.strategy == "auto":
            raise NotPlannedError("parallelism.strategy is auto, and no plan was made yet")
        return self.parallelism.strategy

    @property
    def is_auto(self) -> bool:
        """Return whether strategy and degrees are still to be planned."""
        return self.parallelism.strategy == "auto"

    @property
    def degrees(self) -> Degrees:
        """Mesh of ranks that `parallelism` asks for.

        Raises:
            NotPlannedError: as `strategy`.
        """
        asked = self.parallelism
        given = {
            "data": asked.data,
            "shard": asked.shard,
            "tensor": asked.tensor,
            "pipeline": asked.pipeline,
        }
        adds_up = self.strategy == "ddp" and asked.gradient_sync.algorithm == "parameter_server"
        servers = None if adds_up else asked.servers
        return solve(self.strategy, self.resources.workers, given, servers)

    @property
    def regroups_in_place(self) -> bool:
        """Return whether the remaining ranks keep their state and continue when one dies.

        Under `ddp` each of them holds the whole state.
        """
        return self.task is not None and self.parallelism.strategy == "ddp"

    @property
    def gradient_sync(self) -> SyncOptions:
        """Options for combining gradients over the ranks."""
        return self.parallelism.gradient_sync.options(self.parallelism.servers)

    @property
    def schedule(self) -> Schedule:
        """Schedule of the pipeline; under `model`, one batch at a time."""
        return "gpipe" if self.parallelism.strategy == "model" else self.parallelism.schedule

    @property
    def microbatches(self) -> int:
        """Parts into which a pipeline splits a batch."""
        if self.parallelism.strategy == "pipeline":
            return self.parallelism.microbatches or self.degrees.pipeline
        return 1

    def _check_parallelism(self) -> None:
        strategy = self.parallelism.strategy
        if strategy == "auto":
            self._check_auto()
            return
        try:
            degrees = self.degrees
            if strategy == "pipeline":
                check_schedule(self.schedule, degrees.pipeline, self.microbatches)
            if self.task is not None and self.parallelism.sequence_parallel:
                check_sequences(degrees)
            if self.task is not None and not self.task.is_own:
                check(
                    declaration_of(self.task.parsed_params()),
                    degrees,
                    sequence_parallel=self.parallelism.sequence_parallel,
                    schedule=self.schedule,
                )
        except DegreesError as error:
            value = getattr(self.parallelism, error.field)
            raise problem_at(("parallelism", error.field), value, str(error)) from None
        if strategy != "pipeline" and self.parallelism.microbatches is not None:
            raise problem_at(("parallelism", "microbatches"), self.parallelism.microbatches,
                f"is for strategy pipeline: {strategy} does not split a batch; leave it out, or "
                "use training.gradient_accumulation",
            )  # fmt: skip
        if self.task is None and strategy != "ddp":
            raise problem_at(("parallelism", "strategy"), strategy,
                f"{strategy} is for tasks; a script distributes its own model: leave it out",
            )  # fmt: skip

    def _check_gradient_sync(self) -> None:
        try:
            check_sync(
                self.gradient_sync,
                "script" if self.task is None else self.parallelism.strategy,
                self.resources.workers,
                reproducible=self.training.reproducible,
                loss_scaled=self.training.precision is Precision.FP16,
            )
        except GradientSyncError as error:
            raise problem_at(("parallelism", *error.field), error.value, str(error)) from None

    def _check_auto(self) -> None:
        if self.task is None:
            raise problem_at(("parallelism", "strategy"), "auto",
                "auto is for tasks; a script distributes its own model: leave it out",
            )  # fmt: skip
        for name in (*Degrees().sizes, "servers"):
            given = getattr(self.parallelism, name)
            if given is not None:
                raise problem_at(("parallelism", name), given,
                    "auto chooses the degrees; leave it out, or choose another strategy",
                )  # fmt: skip

    def _check_reproducible(self) -> None:
        strategy, workers = self.parallelism.strategy, self.resources.workers
        shards = self.training.logical_shards
        if self.task is None:
            raise problem_at(("training", "reproducible"), True,
                "is for tasks; a script does its own training: leave it out",
            )  # fmt: skip
        if strategy not in ("ddp", "auto"):
            raise problem_at(("training", "reproducible"), True,
                f"needs strategy ddp: under {strategy} the order of additions depends on the "
                "ranks; leave it out, or set parallelism.strategy to ddp",
            )  # fmt: skip
        if self.training.compile:
            raise problem_at(("training", "compile"), True,
                "conflicts with training.reproducible: compiled kernels differ between hosts and "
                "world sizes, so results would not be bit-identical; leave out one of them",
            )  # fmt: skip
        if workers > shards:
            raise problem_at(("training", "logical_shards"), shards,
                f"{shards} logical shards are fewer than the {workers} workers; give at least "
                f"{workers}, or lower resources.workers",
            )  # fmt: skip

    def _check_paths(self) -> None:
        folder = None if self.code is None or self.code_is_uploaded else PurePosixPath(self.code)
        if folder is not None and not folder.is_absolute():
            raise problem_at("code", self.code,
                "must be the SHA-256 of uploaded code; `trainhall submit` uploads a folder and "
                "fills it in",
            )  # fmt: skip
        for key in ("path", "working_dir") if self.script is not None else ():
            value = getattr(self.script, key)
            if value is None or PurePosixPath(value).is_absolute():
                continue
            if self.code is None:
                raise problem_at(("script", key), value,
                    "must be an absolute path on every node; `trainhall submit` makes it absolute",
                )  # fmt: skip
            if ".." in PurePosixPath(value).parts:
                raise problem_at(("script", key), value, "must lie inside the `code` folder")

    @property
    def code_is_uploaded(self) -> bool:
        """Return whether `code` is the SHA-256 of an upload rather than a folder."""
        return self.code is not None and SHA256.fullmatch(self.code) is not None

    def _check_batch(self) -> None:
        batch, rounds = self.training.global_batch_size, self.training.gradient_accumulation
        # Under `auto` the planner sees which strategies can divide the batch.
        parts, microbatches, unit = 1, 1, "workers"
        if not self.is_auto:
            parts, microbatches = self.degrees.samples, self.microbatches
        if self.training.reproducible:
            parts, unit = self.training.logical_shards, "logical shards"
        divisor = parts * rounds * microbatches
        if batch % divisor != 0:
            factors = {unit: parts, "accumulation steps": rounds, "micro-batches": microbatches}
            product = " × ".join(f"{n} {name}" for name, n in factors.items() if n > 1)
            nearest = max(1, (batch + divisor // 2) // divisor) * divisor
            raise problem_at(("training", "global_batch_size"), batch,
                f"batch size {batch} is not divisible by {divisor} ({product}); "
                f"the nearest valid size is {nearest}",
            )  # fmt: skip

    @model_serializer(mode="wrap")
    def _leave_out_other_work(
        self, handler: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> dict[str, Any]:
        # `task: null` beside a script would be refused by a reader who takes the keys as given, and
        # the defaults of sections for tasks are not what a script does.
        unused = ("script",) if self.script is None else ("task", "training", "parallelism")
        data: dict[str, Any] = handler(self)
        return {k: v for k, v in data.items() if k not in unused}


def _problem_of(error: PydanticCustomError) -> tuple[tuple[str | int, ...], Any, str]:
    """Return the first problem that `problem_at` raised."""
    found: tuple[tuple[str | int, ...], Any, str] = (error.context or {})["problems"][0]
    return found
