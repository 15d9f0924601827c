"""The tables. `jobs` changes with a job's state, `job_progress` with every batch of metrics."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from trainhall.db.documents import (
    Allocation,
    CheckpointPlan,
    Document,
    GenerationRecord,
    GenerationStart,
)
from trainhall.db.types import BigInt, UtcTime


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_label)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy reads it as a class attribute
        datetime: UtcTime,
        dict[str, Any]: JSON,
        list[Any]: JSON,
        bytes: LargeBinary,
    }


class Job(Base):
    """A submission and its state. Only `cluster.lifecycle.jobs` writes `state`."""

    __tablename__ = "jobs"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    number: Mapped[int] = mapped_column(BigInt, unique=True)
    """Order of submission, and the tie-breaker of the queue."""
    name: Mapped[str] = mapped_column(String(128))
    kind: Mapped[str] = mapped_column(String(8), server_default="job")
    """`job`, or `run`: one that runs elsewhere, and whose client logs here (`db.tracking`). A run
    has no attempt; its metrics are those of attempt 0, and its spec is empty."""
    user: Mapped[str | None] = mapped_column(String(128))
    """This and the next four begin as copies of parts of `spec`, by which lists are filtered and
    sorted: SQL reads them without parsing all specs."""
    project: Mapped[str] = mapped_column(String(128), server_default="default")
    task: Mapped[str | None] = mapped_column(String(128))
    strategy: Mapped[str | None] = mapped_column(String(32))
    parameters: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    """Parameters of the spec, and what the job logs as such (`cluster.runs.logged`)."""
    mlflow_tags: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    """Tags that its MLflow clients set."""
    tags: Mapped[list[Any] | None] = mapped_column(JSON(none_as_null=True))
    """These and the notes begin as those of `spec`, and are changed later."""
    notes: Mapped[str | None] = mapped_column(Text)
    spec: Mapped[dict[str, Any]]
    code: Mapped[str | None] = mapped_column(String(64), index=True)
    """SHA-256 of the uploaded code that the spec names."""
    priority: Mapped[int]
    state: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str] = mapped_column(Text)
    reason_code: Mapped[str] = mapped_column(String(48), default="")
    """`trainhall.cluster.lifecycle.reasons.ReasonCode`."""
    asked_by: Mapped[str | None] = mapped_column(String(128))
    """User who last asked for a change of its state or size; None: nobody that is known."""
    attempt: Mapped[int] = mapped_column(default=0)
    """The newest attempt's number; 0 before the first."""
    generation: Mapped[int] = mapped_column(default=0)
    world_size: Mapped[int]
    """World size of its newest attempt; before the first the largest it can have."""
    sizes: Mapped[list[Any] | None] = mapped_column(JSON(none_as_null=True))
    """World sizes that an elastic or resized job can have, ascending."""
    restarts: Mapped[int] = mapped_column(default=0)
    """Failed attempts since the last new step; bounded by `recovery.max_restarts`."""
    restarts_step: Mapped[int] = mapped_column(BigInt, default=0)
    """The step that `restarts` counts from."""
    pauses_after: Mapped[int] = mapped_column(BigInt, default=0)
    """The step at which it paused by itself, or from which a user resumed or restored it: pauses of
    `training.pause_at` up to there are over."""
    plan: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    """Plan, also of a named strategy (`cluster.jobs.plans`), and the measurements of its runs."""
    measured_on: Mapped[str | None] = mapped_column(String(128), index=True)
    """The kind of device on which `plan` was measured."""
    restore_checkpoint_id: Mapped[str | None] = mapped_column(String(32))
    """Start the next attempt from this checkpoint instead of the newest good one."""
    experiment_id: Mapped[str | None] = mapped_column(String(32))
    """The experiment that it is a run of."""
    trial: Mapped[int | None]
    repeat: Mapped[int | None]
    group: Mapped[str | None] = mapped_column(String(256))
    """Name that related runs share: MLflow's experiment."""
    archived: Mapped[bool] = mapped_column(Boolean, default=False)
    """Left out of lists that do not ask for it."""
    created_at: Mapped[datetime]
    queued_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]

    __table_args__ = (
        Index("ix_jobs_state", "state", "archived", "number"),
        Index("ix_jobs_project", "project", "archived", "number"),
        # A run of an experiment that was started twice would be two such rows.
        Index("ix_jobs_experiment_id", "experiment_id", "trial", "repeat", unique=True),
    )


class DeletedJob(Base):
    """A job whose record was deleted, until its metrics, logs, gradients and files are, too.

    `metric_frames`, `series`, `log_chunks` and `gradient_records` have no foreign key to `jobs`:
    with that, one transaction would have to delete all of their rows.
    """

    __tablename__ = "deleted_jobs"

    job_id: Mapped[str] = mapped_column(String(32), primary_key=True)


class OrphanedCheckpoint(Base):
    """Folder of a deleted job's checkpoint on shared storage, until a host has removed it."""

    __tablename__ = "orphaned_checkpoints"

    location: Mapped[str] = mapped_column(Text, primary_key=True)
    allocation: Mapped[Allocation] = mapped_column(Document(Allocation))
    """Hosts of the attempt that wrote it."""


class JobProgress(Base):
    """The hot row of a job: the stream's sequence and the last values, updated once a batch.

    Its row lock makes the order of `stream_seq` the order of commits, on Postgres too: a reader
    that saw sequence n will never find an unseen smaller one.
    """

    __tablename__ = "job_progress"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    stream_seq: Mapped[int] = mapped_column(BigInt, default=0)
    stream_trimmed: Mapped[int] = mapped_column(BigInt, default=0)
    """Frames up to this sequence are gone from the raw tail; an older viewer gets a `reset`."""
    step: Mapped[int] = mapped_column(BigInt, default=0)
    total_steps: Mapped[int | None] = mapped_column(BigInt)
    metrics: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """Last value of every job-wide series. NaN and infinities are kept as text."""
    ranges: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """Smallest and largest finite value of every job-wide series."""
    log_bytes: Mapped[int] = mapped_column(BigInt, default=0)
    """Bytes of its ranks' output that are stored."""


class QueuePosition(Base):
    """Position that a job had in the queue for a time (`trainhall.cluster.queue.history`)."""

    __tablename__ = "queue_positions"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    since: Mapped[datetime] = mapped_column(primary_key=True)
    until: Mapped[datetime | None]
    """None: it still has it."""
    position: Mapped[int]
    """1 is next."""

    __table_args__ = (
        Index(
            "ix_queue_positions_present",
            "job_id",
            sqlite_where=text("until IS NULL"),
            postgresql_where=text("until IS NULL"),
        ),
    )


class PackageSet(Base):
    """Python environment that attempts share (`trainhall.cluster.jobs.source.packages`)."""

    __tablename__ = "package_sets"

    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    """Hash of the other columns."""
    python: Mapped[str] = mapped_column(String(32))
    os: Mapped[str] = mapped_column(String(256))
    cuda: Mapped[str | None] = mapped_column(String(32))
    driver: Mapped[str | None] = mapped_column(String(32))
    packages: Mapped[dict[str, Any]]


class Attempt(Base):
    """One execution of a job; its token is (number, generation)."""

    __tablename__ = "attempts"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    generation: Mapped[int] = mapped_column(default=1)
    state: Mapped[str] = mapped_column(String(16))
    """starting, running, stopping; then completed, paused, cancelled, failed or lost."""
    reason: Mapped[str] = mapped_column(Text)
    reason_code: Mapped[str] = mapped_column(String(48), default="")
    goal: Mapped[str] = mapped_column(String(8), default="run")
    """Command to its agents: run, pause or stop."""
    revoked: Mapped[bool] = mapped_column(Boolean, default=False)
    """Fenced off: it may change nothing any more, and what it writes is not counted."""
    world_size: Mapped[int]
    allocation: Mapped[Allocation] = mapped_column(Document(Allocation))
    checkpoint_plan: Mapped[CheckpointPlan] = mapped_column(
        Document(CheckpointPlan), default=CheckpointPlan
    )
    isolation_seconds: Mapped[float | None]
    """Under `recovery.on_isolation: stop`: its ranks end before a node has sent no heartbeat for so
    long, and it is not replaced sooner."""
    in_place: Mapped[bool] = mapped_column(Boolean, default=False)
    """True if its ranks can regroup under the next generation while they run."""
    spec: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    """Spec that it runs with, if its job was resized since and it still has the old size."""
    generations: Mapped[tuple[GenerationRecord, ...]] = mapped_column(
        Document(tuple[GenerationRecord, ...]), default=()
    )
    """Oldest first."""
    planning: Mapped[bool] = mapped_column(Boolean, default=False)
    """True while its first host is to plan the job's strategy."""
    rendezvous: Mapped[dict[str, Any] | None]
    node_outcomes: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """The last `trainhall.cluster.lifecycle.host_report.HostReport` of each node, by node id."""
    first_step: Mapped[int | None] = mapped_column(BigInt)
    """The first step it took: on overlapping steps the newest valid attempt wins."""
    started_at: Mapped[datetime]
    running_at: Mapped[datetime | None]
    stopping_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    failure: Mapped[dict[str, Any] | None]
    gpus: Mapped[int] = mapped_column(default=0)
    """GPUs of its newest generation."""
    gpus_since: Mapped[datetime | None]
    """Start of its newest generation."""
    gpu_seconds: Mapped[float] = mapped_column(default=0.0)
    """GPU seconds of the generations before the newest."""
    began: Mapped[dict[int, GenerationStart]] = mapped_column(
        Document(dict[int, GenerationStart]), default=dict
    )
    """By generation, how it began."""
    asks_to_stop: Mapped[bool] = mapped_column(Boolean, default=False)
    """Its script asks after every step whether to stop, on all ranks."""
    package_set: Mapped[str | None] = mapped_column(ForeignKey("package_sets.sha256"), index=True)
    """Environment of its rank 0; None until that has reported it."""

    __table_args__ = (Index("ix_attempts_state_finished_at", "state", "finished_at"),)


class Node(Base):
    """A host that runs an agent, or one that was registered and has not joined yet."""

    __tablename__ = "nodes"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    name: Mapped[str] = mapped_column(String(128), unique=True)
    state: Mapped[str] = mapped_column(String(16), index=True)
    """pending (registered), ready, suspect, lost, draining, drained. Only
    `trainhall.cluster.lifecycle.nodes` writes it."""
    state_at: Mapped[datetime]
    """Since when."""
    reason: Mapped[str] = mapped_column(Text)
    reason_code: Mapped[str] = mapped_column(String(48), default="")
    drain_reason: Mapped[str | None] = mapped_column(Text)
    """Why it is to be drained; None: it is not."""
    faults_counted_from: Mapped[datetime | None]
    """When a user last took a drain back: faults before that count no more against it."""
    labels: Mapped[dict[str, Any]] = mapped_column(default=dict)
    projects: Mapped[list[Any] | None] = mapped_column(JSON(none_as_null=True))
    """The only projects whose jobs run here; None: all."""
    address: Mapped[str] = mapped_column(String(255), default="")
    agent_version: Mapped[str | None] = mapped_column(String(64))
    join_token_sha256: Mapped[str | None] = mapped_column(String(64), unique=True)
    """None once it is used or has ended."""
    join_expires_at: Mapped[datetime | None]
    credential_sha256: Mapped[str | None] = mapped_column(String(64), unique=True)
    host_use: Mapped[dict[str, Any]] = mapped_column(default=dict)
    removing: Mapped[bool] = mapped_column(Boolean, default=False)
    """Removed as soon as nothing runs on it."""
    removed_by: Mapped[str | None] = mapped_column(String(128))
    """User who removes it; None: not known."""
    created_at: Mapped[datetime]
    last_seen_at: Mapped[datetime | None]


class NodeEvent(Base):
    """Event of a node: a change of its state, or a request of a user."""

    __tablename__ = "node_events"

    id: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=True)
    node_id: Mapped[str] = mapped_column(ForeignKey("nodes.id", ondelete="CASCADE"))
    time: Mapped[datetime]
    state: Mapped[str] = mapped_column(String(16))
    code: Mapped[str] = mapped_column(String(48))
    """`trainhall.cluster.lifecycle.reasons.ReasonCode`."""
    reason: Mapped[str] = mapped_column(Text)

    __table_args__ = (Index("ix_node_events_node_id_id", "node_id", "id"),)


class RemovedNode(Base):
    """A node that was removed: an agent with its credential is refused for good."""

    __tablename__ = "removed_nodes"

    credential_sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str] = mapped_column(String(128))
    removed_at: Mapped[datetime]


class Device(Base):
    """A GPU or CPU slot of a node, with what it last reported."""

    __tablename__ = "devices"

    # Only `trainhall.cluster.nodes.devices` adds, changes and removes them.

    node_id: Mapped[str] = mapped_column(
        ForeignKey("nodes.id", ondelete="CASCADE"), primary_key=True
    )
    index: Mapped[int] = mapped_column(Integer, primary_key=True)
    kind: Mapped[str] = mapped_column(String(8))
    name: Mapped[str] = mapped_column(String(128))
    uuid: Mapped[str | None] = mapped_column(String(128))
    gone: Mapped[bool] = mapped_column(Boolean, default=False)
    """True if its host does not have it any more; the row stays for the attempt that holds it."""
    memory_total: Mapped[int] = mapped_column(BigInt)
    memory_used: Mapped[int | None] = mapped_column(BigInt)
    utilization: Mapped[float | None]
    temperature: Mapped[float | None]
    power: Mapped[float | None]


class DeviceReading(Base):
    """Use of a node's devices in half a minute."""

    __tablename__ = "device_readings"

    node_id: Mapped[str] = mapped_column(
        ForeignKey("nodes.id", ondelete="CASCADE"), primary_key=True
    )
    time: Mapped[datetime] = mapped_column(primary_key=True)
    """When it ended."""
    devices: Mapped[list[Any]]
    """One a device: `[index, utilization, memory_used, temperature, power]`."""

    __table_args__ = (Index("ix_device_readings_time", "time"),)


class Grant(Base):
    """A device held by an attempt. The key makes it impossible to hold one twice."""

    __tablename__ = "grants"

    node_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    device_index: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(String(32))
    attempt: Mapped[int]

    __table_args__ = (
        ForeignKeyConstraint(
            ["node_id", "device_index"], ["devices.node_id", "devices.index"], ondelete="CASCADE"
        ),
        ForeignKeyConstraint(
            ["job_id", "attempt"], ["attempts.job_id", "attempts.number"], ondelete="CASCADE"
        ),
        Index("ix_grants_job_id_attempt", "job_id", "attempt"),
    )


class Checkpoint(Base):
    """A committed checkpoint."""

    __tablename__ = "checkpoints"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    attempt: Mapped[int]
    generation: Mapped[int]
    step: Mapped[int] = mapped_column(BigInt)
    name: Mapped[str] = mapped_column(String(128))
    """Folder name, such as `step-00000120-a1-g1`."""
    location: Mapped[str] = mapped_column(Text)
    """Absolute folder on shared storage, or `store:` for the coordinator's own store."""
    size: Mapped[int] = mapped_column(BigInt)
    state: Mapped[str] = mapped_column(String(16))
    """committed, corrupt, deleting (its files still have to go) or deleted."""
    pinned: Mapped[bool] = mapped_column(Boolean, default=False)
    metrics: Mapped[dict[str, Any]] = mapped_column(default=dict)
    created_at: Mapped[datetime]

    __table_args__ = (
        UniqueConstraint("job_id", "name"),
        Index("ix_checkpoints_job_id_step", "job_id", "step"),
        Index(
            "ix_checkpoints_deleting",
            "job_id",
            sqlite_where=text("state = 'deleting'"),
            postgresql_where=text("state = 'deleting'"),
        ),
    )


class Event(Base):
    """Something that happened to a job, in the order of its stream."""

    __tablename__ = "events"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    seq: Mapped[int] = mapped_column(BigInt, primary_key=True)
    time: Mapped[datetime]
    kind: Mapped[str] = mapped_column(String(32))
    """state, attempt, checkpoint, not_saved, note …"""
    code: Mapped[str] = mapped_column(String(48))
    """`ReasonCode` or `EventCode` of `trainhall.cluster.lifecycle.reasons`."""
    reason: Mapped[str] = mapped_column(Text)
    attempt: Mapped[int | None]
    data: Mapped[dict[str, Any]] = mapped_column(default=dict)


class Writer(Base):
    """A rank process: how far its numbered metric frames and events are committed."""

    __tablename__ = "writers"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    metric_sequence: Mapped[int] = mapped_column(BigInt, default=0)
    event_sequence: Mapped[int] = mapped_column(BigInt, default=0)


class MetricFrame(Base):
    """The raw tail: frames as they came, for the live stream and until they are packed."""

    __tablename__ = "metric_frames"

    job_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    seq: Mapped[int] = mapped_column(BigInt, primary_key=True)
    attempt: Mapped[int]
    payload: Mapped[bytes]
    """One or more frames of `trainhall.training.link`, whole."""
    tables: Mapped[int]
    """Tables in the payload. Each has a stream sequence of its own; `seq` is the last one's."""
    superseded: Mapped[bool] = mapped_column(Boolean, default=False)
    """Written after its attempt was revoked, or by ranks of an earlier generation at steps that a
    later one has taken (`monitoring.lineage`): kept, and left out of every curve."""
    packed: Mapped[bool] = mapped_column(Boolean, default=False)
    """True if its points are in `metric_chunks`; it stays a while for viewers that reconnect."""

    __table_args__ = (
        Index(
            "ix_metric_frames_raw",
            "job_id",
            "seq",
            sqlite_where=text("packed IS 0"),
            postgresql_where=text("packed IS false"),
        ),
    )


class Series(Base):
    """One named metric of one rank (or of the job: rank -1) within one attempt."""

    __tablename__ = "series"

    id: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=True)
    job_id: Mapped[str] = mapped_column(String(32))
    attempt: Mapped[int]
    rank: Mapped[int]
    name: Mapped[str] = mapped_column(String(128))
    superseded: Mapped[bool] = mapped_column(Boolean)
    """True if its points are those of superseded frames."""
    points: Mapped[int] = mapped_column(BigInt, default=0)
    """Number of packed points."""
    last_step: Mapped[int] = mapped_column(BigInt, default=0)
    """The largest step of a packed point."""
    ordered: Mapped[bool] = mapped_column(Boolean, default=True)
    """Every packed step is above the one before, so that steps can be searched."""

    __table_args__ = (UniqueConstraint("job_id", "attempt", "rank", "name", "superseded"),)


class MetricChunk(Base):
    """1,024 consecutive points of a series, or groups of them, packed."""

    __tablename__ = "metric_chunks"

    series_id: Mapped[int] = mapped_column(
        ForeignKey("series.id", ondelete="CASCADE"), primary_key=True
    )
    level: Mapped[int] = mapped_column(primary_key=True)
    """0 holds points; level n holds groups of 2**n points (last, min and max)."""
    index: Mapped[int] = mapped_column(BigInt, primary_key=True)
    """Chunk i holds the level's entries from i * 1,024 on."""
    last_step: Mapped[int] = mapped_column(BigInt)
    count: Mapped[int]
    """Points or groups in `data`."""
    data: Mapped[bytes]
    """As `trainhall.monitoring.chunks` packs it."""

    __table_args__ = (Index("ix_metric_chunks_step", "series_id", "level", "last_step"),)


class GradientRequest(Base):
    """Number of requests for a job's gradients, and of the last one answered."""

    __tablename__ = "gradient_requests"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    asked: Mapped[int] = mapped_column(BigInt)
    answered: Mapped[int] = mapped_column(BigInt)


class GradientRecord(Base):
    """The gradients of one step by parameter, as `trainhall.cluster.jobs.gradients` packs them."""

    __tablename__ = "gradient_records"

    job_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    step: Mapped[int] = mapped_column(BigInt, primary_key=True)
    time: Mapped[datetime]
    request: Mapped[int] = mapped_column(BigInt)
    """Number of the request that it answers; 0: the spec wants it."""
    columns: Mapped[bytes]
    """zlib of JSON: names, norms and the largest norms of a rank."""
    histograms: Mapped[bytes | None] = mapped_column(LargeBinary)
    """zlib of JSON."""


class LogStream(Base):
    """Number of stored bytes of one rank's output.

    If ranks regroup in place, its number may move to another host, whose file follows.
    """

    __tablename__ = "log_streams"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True)
    stream: Mapped[str] = mapped_column(String(8), primary_key=True)
    """stdout or stderr."""
    length: Mapped[int] = mapped_column(BigInt, default=0)
    sources: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """By node id, the bytes of its file that are in it."""
    newest_source: Mapped[str] = mapped_column(String(32), default="")
    """The node whose bytes are the last ones."""
    carry: Mapped[bytes] = mapped_column(default=b"")
    """The unfinished line at the end: acknowledged, and not yet in a chunk."""
    carry_at: Mapped[datetime | None] = mapped_column(index=True)
    """When the carry last grew."""


class LogChunk(Base):
    """A compressed run of whole lines (or pieces of very long ones) of one output file."""

    __tablename__ = "log_chunks"

    job_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    seq: Mapped[int] = mapped_column(BigInt, primary_key=True)
    attempt: Mapped[int]
    rank: Mapped[int]
    stream: Mapped[str] = mapped_column(String(8))
    offset: Mapped[int] = mapped_column(BigInt)
    length: Mapped[int]
    """Bytes before compression."""
    time: Mapped[datetime]
    """When it arrived."""
    data: Mapped[bytes]
    """zlib."""
    superseded: Mapped[bool] = mapped_column(Boolean, default=False)
    """True if it came after its attempt was revoked, or from ranks that a regrouping had left
    out once the others had continued without them."""

    __table_args__ = (
        UniqueConstraint("job_id", "attempt", "rank", "stream", "offset"),
        Index("ix_log_chunks_rank", "job_id", "rank", "seq"),
    )
