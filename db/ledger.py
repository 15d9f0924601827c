"""The table of the ledger: what each attempt cost."""

from datetime import datetime

from sqlalchemy import Boolean, Index, String, func, text
from sqlalchemy.orm import Mapped, mapped_column

from trainhall.db.models import Base
from trainhall.db.types import BigInt


class LedgerEntry(Base):
    """Device-seconds and energy of an attempt (`trainhall.cluster.ledger`); outlives its job.

    The four parts of `held_seconds` are NULL where they are not measured, and smaller than they
    have become while it is open.
    """

    __tablename__ = "ledger"

    job_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(128))
    """Copied from the job, as are the next two."""
    user: Mapped[str | None] = mapped_column(String(128))
    project: Mapped[str | None] = mapped_column(String(128))
    device: Mapped[str] = mapped_column(String(8))
    """Kind of its devices: cpu or cuda."""
    is_open: Mapped[bool] = mapped_column(Boolean, default=True)
    """True until the attempt has ended and its last metrics have come."""
    counted_until: Mapped[datetime] = mapped_column(index=True)
    """The attempt's end once it is closed."""
    held_seconds: Mapped[float] = mapped_column(default=0.0)
    useful_seconds: Mapped[float | None]
    redone_seconds: Mapped[float | None]
    data_seconds: Mapped[float | None]
    """Waiting for data, within steps that count."""
    idle_seconds: Mapped[float | None]
    last_step: Mapped[int | None] = mapped_column(BigInt)
    """The last step that counts."""
    metered_seconds: Mapped[float] = mapped_column(default=0.0)
    """Device-seconds whose power was measured."""
    energy_joules: Mapped[float] = mapped_column(default=0.0)
    """Energy of the metered device-seconds."""

    __table_args__ = (
        Index(
            "ix_ledger_open",
            "job_id",
            "attempt",
            sqlite_where=text("is_open IS 1"),
            postgresql_where=text("is_open IS true"),
        ),
    )


DIVIDED = (
    func.coalesce(LedgerEntry.useful_seconds, 0.0)
    + func.coalesce(LedgerEntry.data_seconds, 0.0)
    + func.coalesce(LedgerEntry.redone_seconds, 0.0)
    + func.coalesce(LedgerEntry.idle_seconds, 0.0)
)
"""The part of `held_seconds` that is measured."""
