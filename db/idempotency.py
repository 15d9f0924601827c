"""Table of the keys under which jobs and experiments were created."""

from datetime import datetime

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from trainhall.db.experiments import Experiment
from trainhall.db.models import Base, Job


class IdempotencyKey(Base):
    """Key of a request, and the job or the experiment that it created."""

    __tablename__ = "idempotency_keys"

    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    body_sha256: Mapped[str] = mapped_column(String(64))
    job_id: Mapped[str | None] = mapped_column(ForeignKey(Job.id, ondelete="CASCADE"), index=True)
    experiment_id: Mapped[str | None] = mapped_column(ForeignKey(Experiment.id, ondelete="CASCADE"))
    created_at: Mapped[datetime]
