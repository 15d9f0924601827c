"""Tables of the provenance of jobs: repository and command, the commit that hosts cloned, the
locked environment, data sets."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, String, Text
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


class JobCommit(Base):
    """Commit of a job whose code hosts clone: of the first host that resolved the spec's `ref`, and
    never changed."""

    __tablename__ = "job_commits"

    job_id: Mapped[str] = mapped_column(
        String(32), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True
    )
    url: Mapped[str] = mapped_column(String(1024))
    ref: Mapped[str] = mapped_column(String(255))
    commit: Mapped[str] = mapped_column(String(64))
    node: Mapped[str] = mapped_column(String(128))
    """Name of the node that resolved it."""
    attempt: Mapped[int]
    pinned_at: Mapped[datetime]


class LockedEnvironment(Base):
    """Lock of a job's environment: of the first host that prepared it, and never changed."""

    __tablename__ = "locked_environments"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    sha256: Mapped[str] = mapped_column(String(64))
    """Hash of `requirements`."""
    python: Mapped[str] = mapped_column(String(16))
    platform: Mapped[str] = mapped_column(String(64))
    torch: Mapped[str] = mapped_column(String(8))
    image: Mapped[str | None] = mapped_column(Text)
    """Image with its digest; None: hosts install packages."""
    requirements: Mapped[str] = mapped_column(Text)
    options: Mapped[list[Any]]
    """Indexes of packages, with passwords where their URLs have them."""
    packages: Mapped[int]
    node: Mapped[str] = mapped_column(String(128))
    """Name of the node that made it."""
    attempt: Mapped[int]
    locked_at: Mapped[datetime]


class DataFingerprint(Base):
    """Data set of an attempt, as its first host found it."""

    __tablename__ = "data_fingerprints"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    kind: Mapped[str] = mapped_column(String(16))
    """As of a `trainhall.cluster.wire.data_sets.Fingerprint`, with what follows."""
    sha256: Mapped[str] = mapped_column(String(64))
    bytes: Mapped[int] = mapped_column(BigInteger)
    files: Mapped[int]
    is_partial: Mapped[bool]
    node: Mapped[str] = mapped_column(String(128))
    """Name of the node."""
    prepared_at: Mapped[datetime]
