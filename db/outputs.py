"""Table of the files that jobs have written."""

from datetime import datetime

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from trainhall.db.models import Base
from trainhall.db.types import BigInt


class OutputFile(Base):
    """One file of one host of a job; its bytes lie in the data folder, under their hash."""

    __tablename__ = "outputs"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    path: Mapped[str] = mapped_column(String(1024), primary_key=True)
    """Relative, as `trainhall.cluster.wire.output_names` writes it."""
    rank: Mapped[int] = mapped_column(primary_key=True)
    """Lowest rank of the host that wrote it."""
    attempt: Mapped[int]
    """Attempt that wrote it."""
    size: Mapped[int] = mapped_column(BigInt)
    """Bytes."""
    sha256: Mapped[str] = mapped_column(String(64))
    modified_at: Mapped[datetime]
    """Its time on the host."""
    stored_at: Mapped[datetime]
