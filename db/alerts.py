"""Tables of alerts, of what they report at present, and of their deliveries."""

from datetime import datetime
from typing import Any

from sqlalchemy import Boolean, ForeignKey, Index, String, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from trainhall.db.models import Base
from trainhall.db.types import BigInt

_PENDING = text("state = 'pending'")


class Alert(Base):
    """Conditions to report, their scope, and the target of the messages."""

    __tablename__ = "alerts"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    number: Mapped[int] = mapped_column(BigInt, unique=True)
    """Order of creation."""
    name: Mapped[str] = mapped_column(String(128))
    on: Mapped[list[Any]]
    """`trainhall.cluster.lifecycle.alerts.Condition`s."""
    user: Mapped[str | None] = mapped_column(String(128))
    """Owner. None: made before there were users; admins see it."""
    scope_kind: Mapped[str] = mapped_column(String(8))
    """cluster, job, project or user."""
    scope_value: Mapped[str | None] = mapped_column(String(128))
    """Id of the job, or name of the project or the user; None for the cluster."""
    waiting_seconds: Mapped[float]
    disk_percent: Mapped[float]
    target_kind: Mapped[str] = mapped_column(String(8))
    """webhook, slack, mail or browser."""
    target_url: Mapped[str | None] = mapped_column(Text)
    secret: Mapped[str | None] = mapped_column(String(64))
    """Key of a webhook's signatures."""
    enabled: Mapped[bool] = mapped_column(Boolean)
    reason: Mapped[str] = mapped_column(Text)
    """Why it is disabled; empty while it is enabled."""
    failing_since: Mapped[datetime | None]
    """The first failed try since the last delivery."""
    created_at: Mapped[datetime]


class AlertFiring(Base):
    """A lasting condition that an alert has reported, until it no longer holds."""

    __tablename__ = "alert_firings"

    alert_id: Mapped[str] = mapped_column(
        ForeignKey("alerts.id", ondelete="CASCADE"), primary_key=True
    )
    condition: Mapped[str] = mapped_column(String(32), primary_key=True)
    subject: Mapped[str] = mapped_column(String(160), primary_key=True)
    """Id of a job or a node, `coordinator`, or a quota as `project:NAME` or `user:NAME`."""
    since: Mapped[datetime]


class AlertDelivery(Base):
    """A message to the target of an alert, stored in the transaction of the event it reports."""

    __tablename__ = "alert_deliveries"

    id: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=True)
    alert_id: Mapped[str] = mapped_column(ForeignKey("alerts.id", ondelete="CASCADE"))
    condition: Mapped[str] = mapped_column(String(32))
    text: Mapped[str] = mapped_column(Text)
    project: Mapped[str | None] = mapped_column(String(128))
    """Project of what it is about; empty: the whole cluster, which admins see. None: it is about
    the alert alone."""
    subjects: Mapped[list[Any]]
    """Jobs, nodes or quotas that it is about, each `{kind, id, name}`."""
    subject_count: Mapped[int]
    """Their number; `subjects` has the first of them."""
    state: Mapped[str] = mapped_column(String(16))
    """pending, delivered, failed or simulated."""
    tries: Mapped[int] = mapped_column(default=0)
    status: Mapped[int | None]
    """HTTP status of the last answer."""
    error: Mapped[str | None] = mapped_column(Text)
    """Why the last try failed."""
    created_at: Mapped[datetime]
    next_try_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None] = mapped_column(index=True)
    sequence: Mapped[int | None] = mapped_column(BigInt, unique=True)
    """Position among the notifications of browsers."""

    __table_args__ = (
        Index("ix_alert_deliveries_alert_id", "alert_id", "id"),
        Index(
            "ix_alert_deliveries_pending",
            "alert_id",
            "next_try_at",
            sqlite_where=_PENDING,
            postgresql_where=_PENDING,
        ),
    )
