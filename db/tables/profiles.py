"""Table of the profiles of jobs' steps."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Boolean, ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from trainhall.db.documents import Document
from trainhall.db.models import Base
from trainhall.db.types import BigInt


@dataclass(frozen=True, slots=True)
class RankProfile:
    """End of a profile on one rank."""

    saved: bool
    first_step: int | None = None
    last_step: int | None = None
    stall_seconds: float | None = None
    message: str = ""


class Profile(Base):
    """One profile of a job's ranks; its traces are files of the job (`trainhall.db.outputs`)."""

    __tablename__ = "profiles"

    job_id: Mapped[str] = mapped_column(
        String(32), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(primary_key=True)
    attempt: Mapped[int]
    generation: Mapped[int]
    """Generation of the attempt: it ends when the ranks regroup."""
    steps: Mapped[int]
    ranks: Mapped[list[Any]]
    stacks: Mapped[bool] = mapped_column(Boolean)
    memory: Mapped[bool] = mapped_column(Boolean)
    asked_by: Mapped[str | None] = mapped_column(String(128))
    asked_at: Mapped[datetime]
    first_step: Mapped[int | None] = mapped_column(BigInt)
    """None until the ranks have begun."""
    results: Mapped[dict[int, RankProfile]] = mapped_column(
        Document(dict[int, RankProfile]), default=dict
    )
    """By rank."""
    ended_at: Mapped[datetime | None]
    """When the last of its ranks had reported."""
