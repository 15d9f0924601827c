"""The tables of an empty database, made from the models at once (Alembic's own advice for it): the
import of Alembic, and every migration since the first, would be a third of a coordinator's start.
"""

from datetime import UTC, datetime

from sqlalchemy import Column, Connection, MetaData, String, Table, insert

from trainhall.db.accounts import Project
from trainhall.db.alerts import Alert
from trainhall.db.experiments import IdempotencyKey
from trainhall.db.lease import CoordinatorLease
from trainhall.db.ledger import LedgerEntry
from trainhall.db.migrations import HEAD
from trainhall.db.models import Base
from trainhall.db.outputs import OutputFile
from trainhall.db.provenance import DataFingerprint, JobCommit, JobProvenance, LockedEnvironment
from trainhall.db.reports import Report
from trainhall.db.tables.profiles import Profile
from trainhall.db.tracking.runs import Run

# Together they import the modules of all tables.
TABLES = (
    *(Project, Alert, IdempotencyKey, CoordinatorLease, LedgerEntry, Report, OutputFile),
    *(JobProvenance, JobCommit, LockedEnvironment, DataFingerprint, Run, Profile),
)
METADATA = Base.metadata

_VERSION = Table(
    "alembic_version",
    MetaData(naming_convention={"pk": "%(table_name)s_pkc"}),
    Column("version_num", String(32), primary_key=True),
)
"""The table in which Alembic keeps the revision, as it makes it."""


def create(connection: Connection) -> None:
    """Create the tables of the newest revision, and the rows that its migrations add."""
    METADATA.create_all(connection, checkfirst=False)
    _VERSION.create(connection, checkfirst=False)
    connection.execute(insert(_VERSION).values(version_num=HEAD))
    default = {"name": "default", "limits": {}, "created_at": datetime.now(UTC)}
    connection.execute(insert(Project).values(default))
