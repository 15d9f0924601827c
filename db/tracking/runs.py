"""Tables of the runs that programs outside log here, beside their rows of `jobs`."""

from datetime import datetime
from typing import Any

from sqlalchemy import Boolean, ForeignKey, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from trainhall.db.models import Base
from trainhall.db.types import BigInt


class RunGroup(Base):
    """A name under which runs of a project are logged: MLflow's experiment."""

    __tablename__ = "run_groups"

    id: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=True)
    project: Mapped[str] = mapped_column(String(128))
    name: Mapped[str] = mapped_column(String(256))
    created_at: Mapped[datetime]

    __table_args__ = (UniqueConstraint("project", "name"),)


class Run(Base):
    """Parameters and tags of a run as its client reads them; metrics are stored like a job's."""

    __tablename__ = "runs"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    group_id: Mapped[int | None] = mapped_column(BigInt, index=True)
    """None: the default experiment, or one that was deleted with its project."""
    status: Mapped[str] = mapped_column(String(16))
    """MLflow's: RUNNING, SCHEDULED, FINISHED, FAILED or KILLED."""
    parameters: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """Texts, as they were logged."""
    tags: Mapped[dict[str, Any]] = mapped_column(default=dict)
    imported: Mapped[bool] = mapped_column(Boolean, default=False)
    """True: it ran earlier, and no alert tells of its end or its losses."""
