"""Tables of what users write for themselves: reports, and views of the list of jobs."""

from datetime import datetime
from typing import Any

from sqlalchemy import String, Text
from sqlalchemy.orm import Mapped, mapped_column

from trainhall.db.models import Base
from trainhall.db.types import BigInt


class Report(Base):
    """A text in Markdown; the dashboard draws its charts."""

    __tablename__ = "reports"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    number: Mapped[int] = mapped_column(BigInt, unique=True)
    """Order of creation."""
    user: Mapped[str | None] = mapped_column(String(128))
    """Its first author."""
    project: Mapped[str] = mapped_column(String(128), server_default="default", index=True)
    title: Mapped[str] = mapped_column(String(128))
    text: Mapped[str] = mapped_column(Text)
    version: Mapped[int]
    """Rises with every change, from 1."""
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]


class SavedView(Base):
    """View of the list of jobs (`trainhall.cluster.jobs.listing.saved_views`)."""

    __tablename__ = "saved_views"

    user: Mapped[str] = mapped_column(String(128), primary_key=True)
    """Name of the user whose view it is; empty: everybody's, from before there were users."""
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    view: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
