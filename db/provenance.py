"""Table of the provenance of jobs."""

from typing import Any

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from trainhall.db.models import Base


class JobProvenance(Base):
    """Repository and command that a job was submitted from: apart from its spec, which every list
    of jobs reads."""

    __tablename__ = "job_provenance"

    job_id: Mapped[str] = mapped_column(
        String(32), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True
    )
    provenance: Mapped[dict[str, Any]]
    """A `trainhall.training.spec.source.provenance.ProvenanceSpec`."""
