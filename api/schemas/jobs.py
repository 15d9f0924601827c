"""Jobs, their attempts, events and logs as the API shows them."""

from pydantic import Field, StrictInt

from trainhall.api.schemas.base import Body, JsonObject, ListPage, MetricValue, Schema, Time
from trainhall.cluster.jobs.commands import Command
from trainhall.cluster.lifecycle.states import AttemptState, JobState
from trainhall.training.link.failure_cause import Cause
from trainhall.training.spec.recovery import MetricMode


class PlanAlternative(Schema):
    """A strategy and mesh that was not chosen, and needs less memory."""

    summary: str
    peak_memory_bytes: int


class PlanPrediction(Schema):
    """Prediction of a planned job's time and memory."""

    peak_memory_bytes: int
    """Peak memory of the rank that needs most."""
    memory: dict[str, int]
    """The same by kind: parameters, gradients, optimizer, activations and buffers."""
    step_seconds: float
    bubble_fraction: float
    communication_bytes: int
    """Bytes that a rank sends in a step."""
    memory_limit: int | None
    """Bytes of a device."""
    smaller: list[PlanAlternative]
    """Alternatives with the least memory, smallest first."""


class PlanMeasured(Schema):
    """Measurements of the newest attempt that ended well."""

    peak_memory_bytes: float
    step_seconds: float
    steps: float
    """Number of measured steps."""
    attempt: int


class PlanError(Schema):
    """By how much what was measured lies above the prediction, as a share of it."""

    peak_memory_bytes: float
    step_seconds: float


class PlanCalibration(Schema):
    """Correction factors of the prediction: medians of runs on the same kind of device."""

    memory: float
    time: float
    runs: int


class Plan(Schema):
    """Plan of a job of strategy `auto`, and its accuracy."""

    summary: str
    """The choice in words, as in `fsdp (shard 4)`."""
    parallelism: JsonObject
    """The choice as it would stand in a job spec."""
    reason: str
    assumed: str
    """Assumption about the devices."""
    device: str
    attempt: int
    """The one that it was made for; later ones with as many workers keep it."""
    world_size: int
    prediction: PlanPrediction
    calibration: PlanCalibration
    measured: PlanMeasured | None
    """Null until an attempt has completed or paused."""
    error: PlanError | None


class Straggler(Schema):
    """A rank that holds up the others."""

    rank: int
    ratio: float
    """Ratio of its own time for a step to the median of all ranks'."""
    node: str | None
    """Name of its node."""


class MainMetric(Schema):
    """The metric that a job is judged by."""

    name: str
    value: MetricValue | None
    """Latest value; null before the first. NaN and infinities are texts."""
    goal: MetricMode | None
    """`min` if lower is better, `max` if higher; null if unknown."""


class Job(Schema):
    """A job and how it stands."""

    id: str
    name: str
    state: JobState
    reason: str
    """Why it is in this state, in plain words."""
    reason_code: str
    """The same for programs, as in `preempted` or `waiting_for_devices`."""
    attempt: int
    """Number of the newest attempt; 0 before the first."""
    generation: int
    """Rises within an attempt at every regrouping of its ranks."""
    step: int
    """Finished optimizer steps."""
    total_steps: int | None
    """Null until the first attempt has reported it."""
    world_size: int
    priority: int
    """Higher runs first."""
    created_at: Time
    started_at: Time | None
    finished_at: Time | None
    ran_seconds: float
    """Total time of its ended attempts, without the time between them."""
    running_since: Time | None
    """Start of the running attempt; null without one."""
    spec: JsonObject
    """The job spec as submitted, with its defaults."""
    metrics: dict[str, MetricValue]
    """Last value of every job-wide series. NaN and infinities are texts."""
    main_metric: MainMetric | None
    """The `metric` of the spec, else a validation metric (`eval_…`, `val…`) that the job reports,
    else a loss; null for a job that reports none of them."""
    allowed_commands: list[Command]
    """Commands that the job carries out in its state."""
    refused_commands: dict[Command, str]
    """For every other command the reason why it would do nothing."""
    straggler: Straggler | None
    """The rank that the others wait for, step after step; null: none does, or it does not run."""
    warnings: list[str]
    """Problems of a job that runs on in spite of them: its newest checkpoint could not be saved,
    or a node of its ranks is suspect. Empty for a job that has ended."""
    plan: Plan | None
    """Plan of strategy `auto`, once it is planned."""


class JobPage(ListPage[Job]):
    """Jobs, the newest first."""


class Outlook(Schema):
    """When a job would start that was submitted now."""

    when: str = Field(json_schema_extra={"enum": ["now", "later", "never"]})
    """`never`: not while cluster and quotas are as they are."""
    position: int
    """In the queue; 1 is next."""
    expected_at: Time | None
    """By what is known of the jobs before it; null when that is too little."""
    reason: str
    """Nodes that it would be placed on, or the reason that it would wait."""


class DryRun(Schema):
    """Result of a submission that creates nothing."""

    name: str
    world_size: int
    priority: int
    spec: JsonObject
    """The job spec with its defaults."""
    lacks_code: bool
    """The code that it names has to be uploaded first."""
    shortage: str | None
    """Why the cluster as it is could not hold the job, were it the only one."""
    outlook: Outlook


class Resize(Body):
    """The number of workers that a job shall have: `workers`, or the other two."""

    workers: StrictInt | None = None
    """A fixed number."""
    min_workers: StrictInt | None = None
    """Minimum of an elastic job. If omitted, it stays; 1 for a job that had a fixed number."""
    max_workers: StrictInt | None = None
    """Maximum of an elastic job. If omitted, it stays."""


class Changes(Body):
    """Changes to a job that resumes; everything is optional."""

    resources: JsonObject | None = None
    """Keys of the job spec's `resources` to replace, such as `{"workers": 4}`."""
    parallelism: JsonObject | None = None
    """Keys of the job spec's `parallelism` to replace."""


class RankPlacement(Schema):
    """Placement of one rank of an attempt."""

    rank: int
    local_rank: int
    device_kind: str
    """`cpu` or `cuda`."""
    device_index: int


class NodeAllocation(Schema):
    """The devices of one node that are granted to an attempt."""

    node_id: str
    node_name: str
    node_rank: int
    ranks: list[RankPlacement]


class Failure(Schema):
    """Why an attempt failed: its first failing rank."""

    rank: int | None = None
    exit_code: int | None = None
    """Set when the rank left by itself."""
    signal: int | None = None
    """Set when a signal ended the rank."""
    message: str
    log_tail: str = ""
    """The last lines of the rank's stderr."""
    cause: Cause = Cause.UNKNOWN
    """Most likely cause: the first thing to look at."""
    evidence: str = ""
    """Evidence for the cause."""
    node: str | None = None
    """Name of the rank's node."""
    step: int | None = None
    """The newest step that was taken before it."""


class Incident(Schema):
    """One failure and the way back to work. Null is what is not known, or not yet."""

    generation: int
    """Generation of the ranks that failed."""
    failure: Failure
    done: str
    """Action taken, as text."""
    happened_at: Time | None
    """By the clock of the rank's host."""
    detected_at: Time | None
    """When the coordinator was informed, or declared the node lost."""
    regrouped_at: Time | None
    """When devices were granted, or the remaining ranks were informed."""
    loaded_at: Time | None
    """All ranks had their state."""
    stepped_at: Time | None
    """The next step was done."""
    steps_redone: int | None
    """Steps that had been taken and were taken again."""
    detect_seconds: float | None
    regroup_seconds: float | None
    load_seconds: float | None
    step_seconds: float | None
    """From the loaded state to the next step."""
    total_seconds: float | None


class Generation(Schema):
    """An attempt between two regroupings of its ranks."""

    generation: int
    time: Time
    """When it was decided."""
    reason: str
    world_size: int
    allocation: list[NodeAllocation]
    failure: Failure | None
    """Failure of the rank or host that it replaced, if one had failed."""


class Attempt(Schema):
    """One execution of a job."""

    attempt: int
    generation: int
    state: AttemptState
    reason: str
    reason_code: str
    world_size: int
    allocation: list[NodeAllocation]
    generations: list[Generation]
    """The oldest first; an attempt that never regrouped has one."""
    started_at: Time
    finished_at: Time | None
    failure: Failure | None
    timeline: list[Incident]
    """Failures in it and their consequences, including regroupings in place."""


class AttemptPage(ListPage[Attempt]):
    """Attempts of a job, the oldest first."""


class Event(Schema):
    """Something that happened to a job."""

    seq: int
    """Position in the job's stream; it rises, with gaps."""
    time: Time
    kind: str
    """`state`, `attempt`, `checkpoint`, `not_saved`, `note` …"""
    code: str
    """Code for programs: a `reason_code`, or as in `checkpoint_saved`; else the kind."""
    reason: str
    attempt: int | None
    data: JsonObject


class EventPage(ListPage[Event]):
    """Events of a job, the oldest first."""


class LogLine(Schema):
    """A line that a rank wrote."""

    attempt: int
    rank: int
    stream: str = Field(json_schema_extra={"enum": ["stdout", "stderr"]})
    offset: int
    """Position of its first byte in the rank's output file."""
    time: Time
    """When the coordinator received it."""
    text: str
    """Without its line break; bytes that are not UTF-8 are replaced."""
    void: bool
    """True if it was written after its attempt was replaced, or had continued without its rank."""


class LogPage(ListPage[LogLine]):
    """Lines of a job's ranks."""

    previous_cursor: str | None
    """Hand it back as `before` for the lines ahead of this page; null when there are none."""
    more: bool
    """Something is stored behind this page that was not looked at for it."""
