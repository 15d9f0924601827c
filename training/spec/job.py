"""The models of a job spec. What could not be launched is refused here, by field."""

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

from trainhall.parallelism.declaration import check, check_sequences
from trainhall.parallelism.degrees import (
    BadDegrees,
    Degrees,
    Schedule,
    StrategyName,
    check_schedule,
    solve,
)
from trainhall.parallelism.gradient_sync import (
    Algorithm,
    BadGradientSync,
    CompressionName,
    SyncOptions,
)
from trainhall.parallelism.gradient_sync import check as check_sync
from trainhall.training.spec.base import Name, SpecModel, Text
from trainhall.training.spec.models import declaration_of
from trainhall.training.spec.problems import problem_at, problems_at, problems_in
from trainhall.training.spec.recovery import CheckpointSpec, RecoverySpec
from trainhall.training.spec.resources import MAX_WORKERS, ResourcesSpec
from trainhall.training.spec.tasks import TASK_PARAMS, TaskParams
from trainhall.training.spec.wording import VARIABLE_NAME

SHA256 = re.compile(r"[0-9a-f]{64}")
_CLASS_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def _module_name(value: str) -> str:
    if not all(part.isidentifier() for part in value.split(".")):
        raise PydanticCustomError("module_name", "must be a module's name, as in package.module")
    return value


def _program(value: str) -> str:
    if "/" in value and not PurePosixPath(value).is_absolute():
        raise PydanticCustomError(
            "program", "must be an absolute path, or a name that is found on the host's PATH"
        )
    return value


AskedStrategy = Literal[StrategyName, "auto"]


class Precision(StrEnum):
    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"


class TaskSpec(SpecModel):
    """A task, built in or of your own: model, data, loss and evaluation under one name."""

    name: Name
    """Name of a built-in task, or `package.module:Class` of your own (docs/tasks.md)."""
    params: dict[str, Any] = Field(default_factory=dict)
    """The task's own parameters: docs/job-spec.md lists them under Built-in tasks. Those of your
    own class are checked by it, on the hosts."""

    @property
    def is_own(self) -> bool:
        """The name is that of a user's class."""
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
                f"no task has this name; known tasks: {known}, or package.module:Class of your own"
                + (f"; did you mean {near[0]}?" if near else ""),
            )  # fmt: skip
        try:
            params_type.model_validate(self.params)
        except ValidationError as error:
            raise problems_at(
                [(("params", *loc), value, told) for loc, value, told in problems_in(error)]
            ) from None
        return self

    def parsed_params(self) -> TaskParams:
        """The parameters with their defaults, as the task's own type."""
        return TASK_PARAMS[self.name].model_validate(self.params)


class ScriptSpec(SpecModel):
    """A script that runs under `torchrun`, started once per rank with the same environment."""

    path: Annotated[Text, Field(min_length=1)] | None = None
    """The script. With `code` it is relative to that folder; without, an absolute path on every
    node that runs it (`trainhall submit` and `trainhall up --demo` resolve a relative one against
    the folder of the spec). Give this or `module`."""
    module: Annotated[Name, AfterValidator(_module_name)] | None = None
    """Start `python -m MODULE` instead of a file. Give this or `path`."""
    args: list[Text] = Field(default_factory=list, max_length=1024)
    """Arguments passed to every rank."""
    env: dict[Annotated[str, Field(pattern=VARIABLE_NAME)], Text] = Field(
        default_factory=dict, max_length=256
    )
    """Environment variables added to every rank's environment."""
    interpreter: Annotated[Text, Field(min_length=1), AfterValidator(_program)] | None = None
    """What runs the script: an absolute path on every node, or a name that is found on its PATH.
    Without it the Python that the agent runs with."""
    working_dir: Annotated[Text, Field(min_length=1)] | None = None
    """Folder in which the ranks start; a relative one is resolved as `path` is. Without it the root
    of `code`, else the script's folder."""

    @model_validator(mode="after")
    def _one_entry(self) -> Self:
        if self.path is not None and self.module is not None:
            raise problem_at("module", self.module, "path and module exclude each other; give one")
        if self.path is None and self.module is None:
            raise problem_at("path", None, "is missing; give it, or module")
        return self


class GradientSync(SpecModel):
    """How gradients are combined over the ranks."""

    algorithm: Algorithm = "native"
    """`native` is the backend's own all-reduce (NCCL, Gloo). `ring`, `tree`, `halving_doubling`,
    `hierarchical`, `parameter_server` and `naive` are those of docs/collectives.md, under `ddp`."""
    compression: CompressionName = "none"
    """What is sent of the gradients (docs/compression.md), under `ddp`."""
    ratio: Annotated[float, Field(gt=0, le=1)] | None = None
    """`topk` and `powersgd`: the share of a gradient's numbers that is sent; 0.01 if left out."""
    bucket_mb: Annotated[float, Field(gt=0, le=4096)] = 25.0
    """Size of DDP's gradient buckets in MiB."""

    def options(self, servers: int | None = None) -> SyncOptions:
        """The same without torch's part, and with the `servers` that belong to an algorithm."""
        theirs = servers if self.algorithm == "parameter_server" else None
        return SyncOptions(self.algorithm, self.compression, self.ratio, theirs)


class ParallelismSpec(SpecModel):
    """How a task's model is spread over the ranks (docs/strategies.md). The degrees that a strategy
    has multiply to the number of workers; one of them may be left out."""

    strategy: AskedStrategy = "ddp"
    """`ddp`: every rank holds the whole model. `fsdp`: ranks share its weights, gradients and
    optimizer state. `tensor`: ranks compute each layer together. `pipeline`: ranks hold some layers
    each, and micro-batches pass through them. `model`: the same, one batch at a time.
    `parameter_server`: some ranks hold weights and optimizer, the others compute gradients.
    `auto`: the fastest of them that fits the devices, with its degrees, planned before the job
    begins (docs/plan.md)."""
    data: Annotated[int, Field(ge=1, le=MAX_WORKERS)] | None = None
    """Copies of the model, each trained on other samples. Under `ddp` the number of workers, else
    1, if left out."""
    shard: Annotated[int, Field(ge=1, le=MAX_WORKERS)] | None = None
    """`fsdp`: ranks among which a copy's weights are divided. Without it all that `data` and
    `tensor` leave."""
    tensor: Annotated[int, Field(ge=1, le=MAX_WORKERS)] | None = None
    """`tensor`, `fsdp` and `pipeline`: ranks that compute each layer together, on the same samples.
    Under `tensor` all that `data` leaves, else 1, if left out."""
    sequence_parallel: bool = False
    """With `tensor` above 1: divide what lies between a transformer's layers by positions."""
    pipeline: Annotated[int, Field(ge=1, le=MAX_WORKERS)] | None = None
    """`pipeline` and `model`: ranks that hold a copy's layers one after the other. Without it all
    that `data` and `tensor` leave."""
    schedule: Schedule = "1f1b"
    """`pipeline`: in which order ranks work on micro-batches. All but `gpipe` and `1f1b` give each
    rank two stages."""
    microbatches: Annotated[int, Field(ge=1, le=65536)] | None = None
    """`pipeline`: parts of a rank's batch that are on their way at once; at least as many as ranks
    in the pipeline, which is also the default."""
    reshard_after_forward: bool = True
    """`fsdp`: free a layer's whole weights between its forward and backward pass. `false` keeps
    them: more memory, a third less communication."""
    servers: Annotated[int, Field(ge=1, le=MAX_WORKERS)] | None = None
    """`parameter_server`: how many of the workers are servers; 1 if left out. The others train. Of
    the algorithm of that name under `ddp`, where servers train too: one per host if left out."""
    gradient_sync: GradientSync = GradientSync()


class LearningRateSchedule(SpecModel):
    """Learning rate over steps: a linear warm-up, then `constant`, `cosine` or `step` decay."""

    kind: Literal["constant", "cosine", "step"] = "constant"
    warmup_steps: Annotated[int, Field(ge=0, le=10**12)] = 0
    """Steps over which the rate rises linearly from zero to `learning_rate`."""
    final_ratio: Annotated[float, Field(ge=0, le=1)] = 0.0
    """`cosine` ends at this share of `learning_rate` (Loshchilov & Hutter, arXiv:1608.03983)."""
    decay_every: Annotated[int, Field(ge=1, le=10**12)] | None = None
    """`step` multiplies the rate by `decay_factor` every so many steps after the warm-up."""
    decay_factor: Annotated[float, Field(gt=0, le=1)] = 0.1

    @model_validator(mode="after")
    def _step_needs_interval(self) -> Self:
        if self.kind == "step" and self.decay_every is None:
            raise problem_at(
                "decay_every", None, "is needed when kind is 'step'; give a number of steps"
            )
        return self


class TrainingSpec(SpecModel):
    steps: Annotated[int, Field(ge=1, le=10**12)] | None = None
    """Optimizer steps to train for. Give this or `epochs`."""
    epochs: Annotated[int, Field(ge=1, le=10**9)] | None = None
    """Passes over the training set, each without its last partial batch. Give this or `steps`."""
    global_batch_size: Annotated[int, Field(ge=1, le=2**31)] = 64
    """Samples per optimizer step over all ranks and accumulation rounds."""
    optimizer: Literal["sgd", "adamw"] = "adamw"
    learning_rate: Annotated[float, Field(gt=0, le=1e6)] = 1e-3
    learning_rate_schedule: LearningRateSchedule = LearningRateSchedule()
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """`sgd`: how much of the last step is in the next."""
    weight_decay: Annotated[float, Field(ge=0, le=1e3)] = 0.0
    precision: Precision = Precision.FP32
    gradient_accumulation: Annotated[int, Field(ge=1, le=65536)] = 1
    """Micro-batches per optimizer step and rank; with `reproducible` per logical shard."""
    activation_checkpointing: Literal["none", "full"] = "none"
    """`full`: keep of each layer its input alone, and compute it again in the backward pass: less
    memory, about a third more time. Acts on layers that are made of several modules, as those of
    a GPT or a ResNet."""
    compile: bool = False
    """Compile such layers with `torch.compile`; hosts need a C++ compiler."""
    gradient_clip: Annotated[float, Field(gt=0, le=1e9)] | None = None
    """Largest global L2 norm of the gradient; larger ones are scaled down to it."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    reproducible: bool = False
    """The same bits on any number of workers, and across every pause, crash and resize
    (docs/reproducible.md). For tasks under `ddp`."""
    logical_shards: Annotated[int, Field(ge=1, le=MAX_WORKERS)] = 4
    """`reproducible`: equal parts of the global batch, which workers share among themselves; at
    least as many as workers. Another number gives other bits."""
    evaluate_every_steps: Annotated[int, Field(ge=1, le=10**12)] | None = None
    """Evaluate on held-out data every so many steps; always at the end."""
    capture_gradients_every_steps: Annotated[int, Field(ge=1, le=10**12)] | None = None
    """Tell the norm of each parameter's gradient every so many steps (docs/gradients.md); without
    it only when asked to."""
    data_workers: Annotated[int, Field(ge=0, le=256)] | None = None
    """Processes of a rank that read its batches ahead; 0 reads them in the rank itself. Without it:
    0 for data in memory, else one less than the rank's share of the cores, from 1 to 8."""
    data_prefetch: Annotated[int, Field(ge=1, le=1024)] = 2
    """Batches that each data worker reads ahead."""

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if self.steps is not None and self.epochs is not None:
            raise problem_at("epochs", self.epochs, "steps and epochs exclude each other; give one")
        if self.steps is None and self.epochs is None:
            # Every task needs an end; one pass over the data is what most people mean.
            object.__setattr__(self, "epochs", 1)
        return self


class NotPlanned(RuntimeError):
    """What a strategy decides was asked of a job that has none yet."""


class JobSpec(SpecModel):
    """What a user submits."""

    name: Name
    """A name for people; it need not be unique."""
    task: TaskSpec | None = None
    """A task, built in or of your own. Give exactly one of `task` and `script`."""
    script: ScriptSpec | None = None
    """A script that runs under `torchrun`. Give exactly one of `task` and `script`."""
    code: Annotated[Text, Field(min_length=1)] | None = None
    """A folder with the job's code, at most 64 MiB (docs/scripts.md). `trainhall submit` uploads it
    and puts the SHA-256 of the upload in its place, which is what the coordinator takes. A relative
    path is resolved against the folder of the spec."""
    resources: ResourcesSpec = ResourcesSpec()
    parallelism: ParallelismSpec = ParallelismSpec()
    training: TrainingSpec = TrainingSpec()
    checkpoint: CheckpointSpec = CheckpointSpec()
    recovery: RecoverySpec = RecoverySpec()
    priority: Annotated[int, Field(ge=-1_000_000, le=1_000_000)] = 0
    """Higher runs first, equal ones in the order of submission; waiting counts too, and jobs of
    lower priority make room (docs/scheduling.md)."""
    preemption: bool = True
    """Whether it may be paused or made smaller to make room for a job of higher priority."""
    project: Name | None = None
    """What it belongs to, for quotas."""
    user: Name | None = None
    """Whose it is, for quotas. `trainhall submit` fills in the login name."""

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
        """What depends on the number of workers."""
        self._check_parallelism()
        self._check_gradient_sync()
        if self.training.reproducible:
            self._check_reproducible()
        if self.task is not None:
            self._check_batch()

    def _check_task_only(self) -> None:
        """What a script would never see."""
        untouched = TrainingSpec()
        for name in TrainingSpec.model_fields:
            value = getattr(self.training, name)
            if value != getattr(untouched, name):
                raise problem_at(("training", name), value,
                    "is for tasks; a script trains by itself, so leave it out, or pass it in "
                    "script.args",
                )  # fmt: skip
        for name in ("every_steps", "every_seconds"):
            if (value := getattr(self.checkpoint, name)) is not None:
                raise problem_at(("checkpoint", name), value,
                    "is for tasks; a script says itself when it saves (trainhall.checkpoint.save), "
                    "so leave it out",
                )  # fmt: skip

    def _take_the_largest(self) -> None:
        """Let `resources.workers` of an elastic job be the largest number that is possible."""
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
        # What is wrong at every size alike has nothing to do with the size.
        if any(_problem_of(each) != (loc, value, message) for each in refused):
            message = (
                f"no number of workers from {least} to {most} is possible; with {most}: {message}"
            )
        raise problem_at(loc, value, message)

    def _obstacle_at(self, workers: int) -> PydanticCustomError | None:
        """Why the job cannot have so many workers; None when it can."""
        fixed = self.model_copy(update={"resources": self.resources.at(workers)})
        try:
            fixed._check_size()
        except PydanticCustomError as error:
            return error
        return None

    @property
    def possible_workers(self) -> tuple[int, ...]:
        """The numbers of workers that the job can run with, ascending; a fixed job has one."""
        if not self.resources.is_elastic:
            return (self.resources.workers,)
        return tuple(n for n in self.resources.asked if self._obstacle_at(n) is None)

    def at(self, workers: int) -> Self:
        """The spec that one attempt runs with: the same job on a fixed number of workers.

        Raises:
            ValueError: the job cannot have so many.
        """
        if workers not in self.resources.asked or self._obstacle_at(workers) is not None:
            raise ValueError(f"a job of {self.resources.asked} workers cannot have {workers}")
        return self.model_copy(update={"resources": self.resources.at(workers)})

    @property
    def strategy(self) -> StrategyName:
        """The strategy to train under.

        Raises:
            NotPlanned: it is `auto`, for which no plan was made yet.
        """
        if self.parallelism.strategy == "auto":
            raise NotPlanned("parallelism.strategy is auto, and no plan was made yet")
        return self.parallelism.strategy

    @property
    def is_auto(self) -> bool:
        """Strategy and degrees are yet to be planned."""
        return self.parallelism.strategy == "auto"

    @property
    def degrees(self) -> Degrees:
        """The mesh of ranks that `parallelism` asks for.

        Raises:
            NotPlanned: as `strategy`.
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
        """When a rank dies, the others keep what they have in memory and go on with a new one, or
        with fewer. Under `ddp` each of them holds all that another needs."""
        return self.task is not None and self.parallelism.strategy == "ddp"

    @property
    def gradient_sync(self) -> SyncOptions:
        """How gradients are combined over the ranks."""
        return self.parallelism.gradient_sync.options(self.parallelism.servers)

    @property
    def schedule(self) -> Schedule:
        """In which order the ranks of a pipeline work; under `model` on one batch at a time."""
        return "gpipe" if self.parallelism.strategy == "model" else self.parallelism.schedule

    @property
    def microbatches(self) -> int:
        """Parts into which a pipeline cuts a batch."""
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
        except BadDegrees as error:
            value = getattr(self.parallelism, error.field)
            raise problem_at(("parallelism", error.field), value, str(error)) from None
        if strategy != "pipeline" and self.parallelism.microbatches is not None:
            raise problem_at(("parallelism", "microbatches"), self.parallelism.microbatches,
                f"is for strategy pipeline: {strategy} has no stages that a batch could pass in "
                "parts; leave it out, or use training.gradient_accumulation",
            )  # fmt: skip
        if self.task is None and strategy != "ddp":
            raise problem_at(("parallelism", "strategy"), strategy,
                f"{strategy} is for tasks; a script spreads its model itself, so leave it out",
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
        except BadGradientSync as error:
            raise problem_at(("parallelism", *error.field), error.value, str(error)) from None

    def _check_auto(self) -> None:
        if self.task is None:
            raise problem_at(("parallelism", "strategy"), "auto",
                "auto is for tasks; a script spreads its model itself, so leave it out",
            )  # fmt: skip
        for name in (*Degrees().sizes, "servers"):
            given = getattr(self.parallelism, name)
            if given is not None:
                raise problem_at(("parallelism", name), given,
                    "auto chooses the degrees; leave it out, or name a strategy that has it",
                )  # fmt: skip

    def _check_reproducible(self) -> None:
        strategy, workers = self.parallelism.strategy, self.resources.workers
        shards = self.training.logical_shards
        if self.task is None:
            raise problem_at(("training", "reproducible"), True,
                "is for tasks; a script trains by itself, so leave it out",
            )  # fmt: skip
        if strategy not in ("ddp", "auto"):
            raise problem_at(("training", "reproducible"), True,
                f"needs strategy ddp: {strategy} adds numbers in an order that depends on the "
                "ranks; leave it out, or set parallelism.strategy to ddp",
            )  # fmt: skip
        if self.training.compile:
            raise problem_at(("training", "compile"), True,
                "takes kernels that are chosen and cut anew on each host and world size, so bits "
                "would differ; leave it out, or training.reproducible",
            )  # fmt: skip
        if workers > shards:
            raise problem_at(("training", "logical_shards"), shards,
                f"{workers} workers cannot share {shards} logical shards: {workers - shards} would "
                f"have none; give at least {workers}, or lower resources.workers",
            )  # fmt: skip

    def _check_paths(self) -> None:
        folder = None if self.code is None or self.code_is_uploaded else PurePosixPath(self.code)
        if folder is not None and not folder.is_absolute():
            raise problem_at("code", self.code,
                "must be the SHA-256 of uploaded code, or a folder; `trainhall submit` uploads it",
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
                raise problem_at(("script", key), value, "must lie within the folder of `code`")

    @property
    def code_is_uploaded(self) -> bool:
        """`code` is the SHA-256 of an upload, not a folder."""
        return self.code is not None and SHA256.fullmatch(self.code) is not None

    def _check_batch(self) -> None:
        batch, rounds = self.training.global_batch_size, self.training.gradient_accumulation
        # Which strategies can divide the batch is the planner's to see.
        parts, microbatches, who = 1, 1, "worker"
        if not self.is_auto:
            parts, microbatches, who = self.degrees.samples, self.microbatches, "workers"
        if self.training.reproducible:
            parts, who = self.training.logical_shards, "logical shards"
        step = parts * rounds * microbatches
        told = f" × {microbatches} micro-batches" if microbatches > 1 else ""
        if batch % step != 0:
            nearest = max(1, (batch + step // 2) // step) * step
            raise problem_at(("training", "global_batch_size"), batch,
                f"{batch} does not divide by {parts} {who} × {rounds} accumulation rounds"
                f"{told} = {step}; the nearest that does is {nearest}",
            )  # fmt: skip

    @model_serializer(mode="wrap")
    def _leave_out_the_absent_work(
        self, handler: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> dict[str, Any]:
        # `task: null` beside a script would be refused by a reader who takes the keys as given.
        data: dict[str, Any] = handler(self)
        return {k: v for k, v in data.items() if v is not None or k not in ("task", "script")}


def _problem_of(error: PydanticCustomError) -> tuple[tuple[str | int, ...], Any, str]:
    """The first of what `problem_at` raised."""
    found: tuple[tuple[str | int, ...], Any, str] = (error.context or {})["problems"][0]
    return found
