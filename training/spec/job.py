"""The job spec as a whole: a spec that could not be launched is refused here, field by field."""

import hashlib
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self, cast

from pydantic import (
    Field,
    ModelWrapValidatorHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from trainhall.parallelism.data_parallel.gradient_sync import GradientSyncError, SyncOptions
from trainhall.parallelism.data_parallel.gradient_sync import check as check_sync
from trainhall.parallelism.declaration import check, check_sequences
from trainhall.parallelism.degrees import (
    Degrees,
    DegreesError,
    Schedule,
    StrategyName,
    check_schedule,
)
from trainhall.training.spec.base import Name, Notes, SpecModel, Tags
from trainhall.training.spec.models import declaration_of
from trainhall.training.spec.parameters import Parameters, substitute
from trainhall.training.spec.problems import problem_at
from trainhall.training.spec.program import ScriptSpec, TaskSpec
from trainhall.training.spec.recovery import CheckpointSpec, MetricSpec, OutputsSpec, RecoverySpec
from trainhall.training.spec.resources import ResourcesSpec
from trainhall.training.spec.source.git_code import Code, GitCode
from trainhall.training.spec.source.provenance import ProvenanceSpec
from trainhall.training.spec.tasks import paths_in, with_data
from trainhall.training.spec.training import (
    NotPlannedError,
    ParallelismSpec,
    Precision,
    TrainingSpec,
)
from trainhall.training.spec.variables.secrets import SecretNames, exposed
from trainhall.training.spec.world.data import (
    MAX_DATA_SETS,
    PREFIX,
    DataSpec,
    reference_in,
    undefined_data,
)
from trainhall.training.spec.world.environment import EnvironmentSpec
from trainhall.training.spec.world.interactive import MODULE, InteractiveSpec

SHA256 = re.compile(r"[0-9a-f]{64}")


KEPT_SPECS = 256
KEPT_BYTES = 64 * 1024
"""Longer documents are validated each time, so that the kept specs take few megabytes."""
_VALIDATED: OrderedDict[bytes, Any] = OrderedDict()
"""The specs that this process validated last, by their documents' SHA-256. They are immutable."""


class JobSpec(SpecModel):
    """The document that a user submits."""

    name: Name
    """Need not be unique."""
    task: TaskSpec | None = None
    """Give this or `script`."""
    script: ScriptSpec | None = None
    """Give this or `task`."""
    interactive: InteractiveSpec | None = None
    """Give this in place of both to hold devices, and work on them by `trainhall exec`."""
    parameters: Parameters = Field(default_factory=dict)
    """Values that you vary, by name: strings, numbers and booleans. `${name}` in `script.args`,
    `trainhall.parameters()` and the variable TRAINHALL_PARAMETERS (JSON) hold them; `$${name}` in
    `script.args` is the text `${name}` itself."""
    code: Code = None
    """Folder of the job's code (docs/scripts.md), relative to the spec, at most 64 MiB. `trainhall
    submit` uploads it and puts the upload's SHA-256 here. Or a git repository that hosts clone:
    `{git: URL, ref: main}`."""
    outputs: OutputsSpec = OutputsSpec()
    """Files that the job leaves (docs/outputs.md)."""
    environment: EnvironmentSpec = EnvironmentSpec()
    data: Annotated[list[DataSpec], Field(max_length=MAX_DATA_SETS)] = Field(default_factory=list)
    """Data sets that each host has ready, under their names, before its ranks start
    (docs/data.md)."""
    resources: ResourcesSpec = ResourcesSpec()
    parallelism: ParallelismSpec = ParallelismSpec()
    training: TrainingSpec = TrainingSpec()
    checkpoint: CheckpointSpec = CheckpointSpec()
    recovery: RecoverySpec = RecoverySpec()
    metric: MetricSpec | None = None
    """Main metric, shown first and in lists. Default: a reported validation metric (`eval_…`,
    `val…`), else a loss."""
    priority: Annotated[int, Field(ge=-1_000_000, le=1_000_000)] = 0
    """Higher runs first, then the earlier submission; higher may preempt lower, and waiting raises
    it (docs/scheduling.md)."""
    preemption: bool = True
    """Let jobs of higher priority pause this one or take some of its workers."""
    project: Name | None = None
    """Project that the job belongs to. Default: the submitter's only one, for an admin
    `default`; commands fill in `TRAINHALL_PROJECT`."""
    user: Name | None = None
    """Owner. Default: who submits the job; only an admin may name another."""
    api_token: Literal["viewer", "member"] | None = None
    """Give the ranks an API token for the job's project, with this role at most and never more than
    the owner has there. It is valid while the attempt runs, in the variable TRAINHALL_TOKEN, beside
    TRAINHALL_URL (docs/scripts.md)."""
    secrets: SecretNames = Field(default_factory=list)
    """Names of secrets (`trainhall secrets set NAME`) that ranks get as environment variables: the
    owner's own, else the project's (docs/secrets.md)."""
    tags: Tags = Field(default_factory=list)
    """At most 32 words to find jobs by; `trainhall tag` changes them later."""
    notes: Notes = ""
    """Markdown, shown on the job's page; `trainhall note` changes it later."""
    provenance: ProvenanceSpec | None = None
    """Repository and command that the job was submitted from. `trainhall submit` fills it in; the
    coordinator keeps it beside the spec (docs/scripts.md#provenance)."""

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        self._check_paths()
        self._check_secrets()
        self._check_data()
        if self.interactive is not None:
            self._hold_devices()
        if self.task is not None and self.script is not None:
            raise problem_at("script", None, "task and script exclude each other; give one")
        if self.task is None and self.script is None:
            raise problem_at("task", None, "give exactly one of task, script and interactive")
        if self.resources.is_elastic:
            self._take_the_largest()
        else:
            self._check_size()
        if self.script is not None:
            self._check_task_only()
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _validate_once(cls, data: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """Validate a document once per process: it comes again with every message and launch."""
        # The last of the validators, since each is around those before it.
        if isinstance(data, cls):
            return data
        document = repr(data).encode()  # unlike JSON it distinguishes the keys 1 and "1"
        if len(document) > KEPT_BYTES:
            return validate(data)
        digest = hashlib.sha256(document).digest()
        spec = _VALIDATED.pop(digest, None) or validate(data)
        _VALIDATED[digest] = spec
        if len(_VALIDATED) > KEPT_SPECS:
            _VALIDATED.popitem(last=False)  # in one call, since other threads validate too
        return cast(Self, spec)

    def _check_size(self) -> None:
        """Check everything that depends on the number of workers."""
        self._check_parallelism()
        self._check_gradient_sync()
        if self.training.reproducible:
            self._check_reproducible()
        if self.task is not None:
            self._check_batch()

    def _check_secrets(self) -> None:
        for name in self.secrets:
            for where, variables in self._variables():
                if name in variables:
                    raise problem_at((*where, name), None,
                        "is a secret of the job, too; leave it out here, or in `secrets`",
                    )  # fmt: skip

    def _hold_devices(self) -> None:
        """Give an interactive job the program that waits beside its users."""
        program = ScriptSpec(module=MODULE)
        for name, given in (("task", self.task), ("script", self.script)):
            if given is not None and given != program:
                raise problem_at(name, None,
                    "an interactive job runs nothing of its own: leave it out, and start programs "
                    "by `trainhall exec`",
                )  # fmt: skip
        object.__setattr__(self, "script", program)

    def _check_data(self) -> None:
        known: dict[str, str] = {}
        for i, each in enumerate(self.data):
            if each.variable in known:
                raise problem_at(("data", i, "name"), each.name,
                    f"has the same variable, {each.variable}, as the data set "
                    f"{known[each.variable]}; rename one",
                )  # fmt: skip
            known[each.variable] = each.name
            for name in each.secrets:
                if name not in self.secrets:
                    raise problem_at(("data", i, "headers"), name,
                        f"is no secret of the job; add `secrets: [{name}]` to the spec",
                    )  # fmt: skip
        is_built_in = self.task is not None and not self.task.is_own
        params = self.task.params if self.task is not None and is_built_in else {}
        for key, path in paths_in(params):
            wanted = reference_in(path)
            if wanted is not None and wanted not in known.values():
                raise problem_at(("task", "params", key), path, undefined_data(wanted, self.data))

    def with_data(self, paths: Mapping[str, str]) -> Self:
        """Return the spec of an attempt on a host, with the paths of data sets in place of their
        names in the parameters of a built-in task."""
        if self.task is None or self.task.is_own or not paths:
            return self
        task = self.task.model_copy(update={"params": with_data(self.task.params, paths)})
        return self.model_copy(update={"task": task})

    def _variables(self) -> Iterator[tuple[tuple[str, str], Mapping[str, str]]]:
        """Yield the environment variables that the spec gives, with their field."""
        yield ("environment", "variables"), self.environment.variables
        if self.script is not None:
            yield ("script", "env"), self.script.env

    def _check_task_only(self) -> None:
        """Refuse options that a script would never see."""
        untouched = TrainingSpec()
        for name in TrainingSpec.model_fields:
            value = getattr(self.training, name)
            if name != "pause_at" and value != getattr(untouched, name):
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
    def arguments(self) -> list[str]:
        """Arguments of the script, with the values of parameters."""
        return self.arguments_with({})

    def arguments_with(self, paths: Mapping[str, str]) -> list[str]:
        """Return the arguments of the script, with the values of parameters and the paths of data
        sets."""
        places = {f"{PREFIX}{name}": path for name, path in paths.items()}
        arguments = self.script.args if self.script is not None else []
        return substitute(arguments, {**self.parameters, **places})

    @property
    def warnings(self) -> list[str]:
        """Advice on a spec that is valid: values that look like secrets."""
        found = [exposed(values, ".".join(where)) for where, values in self._variables()]
        of_headers = [each.exposed_header for each in self.data if each.exposed_header]
        return [*(text for texts in found for text in texts), *of_headers]

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
            raise NotPlannedError
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
        return self.parallelism.degrees_on(self.resources.workers)

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
        if not self.outputs.is_whole and self.code is None:
            raise problem_at(("outputs", "path"), self.outputs.path,
                "needs `code`: a job in a folder of the host's own leaves what it writes to "
                "TRAINHALL_OUTPUTS; leave it out",
            )  # fmt: skip
        folder = PurePosixPath(self.code_folder) if self.code_folder is not None else None
        if folder is not None and not folder.is_absolute():
            raise problem_at("code", self.code,
                "must be the SHA-256 of uploaded code; to have a folder uploaded, submit the file "
                "with the `trainhall` command",
            )  # fmt: skip
        for where, value in self._paths_in_code():
            if PurePosixPath(value).is_absolute():
                continue
            if self.code is None:
                raise problem_at(where, value,
                    "must be an absolute path on every node; `trainhall submit` makes it absolute",
                )  # fmt: skip
            if ".." in PurePosixPath(value).parts:
                raise problem_at(where, value, "must lie inside the `code` folder")

    def _paths_in_code(self) -> Iterator[tuple[tuple[str, str], str]]:
        """Yield the paths that are relative to `code`, each with its field."""
        for key in ("path", "working_dir") if self.script is not None else ():
            if (value := getattr(self.script, key)) is not None:
                yield ("script", key), value
        if self.environment.source is not None:
            key, value = self.environment.source
            yield ("environment", key), value

    @property
    def uploaded_code(self) -> str | None:
        """Return the SHA-256 of the job's uploaded code; None if it has none."""
        return self.code if isinstance(self.code, str) and SHA256.fullmatch(self.code) else None

    @property
    def git_code(self) -> GitCode | None:
        """Return the repository of the job's code; None if that is not in git."""
        return self.code if isinstance(self.code, GitCode) else None

    @property
    def code_folder(self) -> str | None:
        """Return the folder that is still to be uploaded, or used in place; None if there is
        none."""
        return self.code if isinstance(self.code, str) and self.uploaded_code is None else None

    @property
    def needed_secrets(self) -> list[str]:
        """Names of all secrets that the job's hosts need: those of the ranks, and the code's."""
        token = self.git_code.token if self.git_code is not None else None
        return [*self.secrets, *([token] if token and token not in self.secrets else ())]

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
        kept = {k: v for k, v in data.items() if k not in unused}
        if self.provenance is None:
            kept.pop("provenance", None)
        if self.script is not None and self.training.pause_at:
            kept["training"] = {"pause_at": data["training"]["pause_at"]}
        return kept


def _problem_of(error: PydanticCustomError) -> tuple[tuple[str | int, ...], Any, str]:
    """Return the first problem that `problem_at` raised."""
    found: tuple[tuple[str | int, ...], Any, str] = (error.context or {})["problems"][0]
    return found
