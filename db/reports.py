"""Table of the reports that users write."""

from datetime import datetime

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
    title: Mapped[str] = mapped_column(String(128))
    text: Mapped[str] = mapped_column(Text)
    version: Mapped[int]
    """Rises with every change, from 1."""
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
