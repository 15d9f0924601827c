"""Tables of experiments and their trials, and of the keys under which these and jobs were
created."""

from datetime import datetime
from typing import Any

from sqlalchemy import Boolean, ForeignKey, Index, String, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from trainhall.db.models import Base, Job
from trainhall.db.types import BigInt


class Experiment(Base):
    """A set of jobs that answers one question. Only `cluster.lifecycle.experiments` writes `state`.

    Its row lock comes before those of its jobs: code that starts or commands them holds it.
    """

    __tablename__ = "experiments"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    number: Mapped[int] = mapped_column(BigInt, unique=True)
    """Order of creation."""
    name: Mapped[str] = mapped_column(String(128))
    user: Mapped[str | None] = mapped_column(String(128))
    """Owner, also of its jobs."""
    project: Mapped[str] = mapped_column(String(128), server_default="default", index=True)
    kind: Mapped[str] = mapped_column(String(16))
    spec: Mapped[dict[str, Any]]
    """As it was given, with its defaults."""
    code: Mapped[str | None] = mapped_column(String(64), index=True)
    """SHA-256 of the uploaded code that its job names."""
    state: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str] = mapped_column(Text)
    reason_code: Mapped[str] = mapped_column(String(48))
    asked_by: Mapped[str | None] = mapped_column(String(128))
    """User who last commanded it; None: not known."""
    metric: Mapped[str] = mapped_column(Text)
    goal: Mapped[str] = mapped_column(String(8))
    """min or max."""
    objective_at: Mapped[str] = mapped_column(String(8))
    """last, best or median: the value of the metric that rates a run."""
    parallel: Mapped[int]
    """Most runs that are unfinished at a time."""
    created_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    """When its last run had ended."""

    __table_args__ = (
        Index(
            "ix_experiments_unfinished",
            "id",
            sqlite_where=text("finished_at IS NULL"),
            postgresql_where=text("finished_at IS NULL"),
        ),
    )


class Trial(Base):
    """One run of an experiment: a configuration, and which repeat of it."""

    __tablename__ = "trials"

    experiment_id: Mapped[str] = mapped_column(
        ForeignKey("experiments.id", ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """Number of the configuration, from 1."""
    repeat: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """Number of the repeat, from 1."""
    position: Mapped[int]
    """Place in the order in which the runs start, from 1."""
    values: Mapped[dict[str, Any]]
    """The configuration: values by the fields of the job spec that they replace."""
    state: Mapped[str] = mapped_column(String(16))
    """`trainhall.cluster.lifecycle.states.TrialState`."""
    reason: Mapped[str] = mapped_column(Text, default="")
    """Why it ended as it did."""
    reason_code: Mapped[str] = mapped_column(String(48), default="")
    job_id: Mapped[str | None] = mapped_column(
        ForeignKey("jobs.id", ondelete="SET NULL"), unique=True
    )
    command: Mapped[str | None] = mapped_column(String(8))
    """pause, resume, cancel or promote (to resume at a rung): still to be given to its job."""
    paused: Mapped[bool] = mapped_column(Boolean, default=False)
    """True if its job was paused with the experiment, or at a rung: to be resumed with it."""
    objective: Mapped[float | None]
    """Value that rates it, once it has completed; before, that at its last rung."""
    results: Mapped[list[Any]] = mapped_column(default=list)
    """Objective at each rung of early stopping that it has reached; null: no finite value."""

    __table_args__ = (Index("ix_trials_state", "experiment_id", "state"),)


class IdempotencyKey(Base):
    """Key of a request, and the job or the experiment that it created."""

    __tablename__ = "idempotency_keys"

    user: Mapped[str] = mapped_column(String(128), primary_key=True)
    """Name of the user whose key it is: others may use the same."""
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    body_sha256: Mapped[str] = mapped_column(String(64))
    job_id: Mapped[str | None] = mapped_column(ForeignKey(Job.id, ondelete="CASCADE"), index=True)
    experiment_id: Mapped[str | None] = mapped_column(ForeignKey(Experiment.id, ondelete="CASCADE"))
    created_at: Mapped[datetime]
