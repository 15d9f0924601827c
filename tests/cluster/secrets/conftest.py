"""Users, projects and a job for tests of secrets."""

from pathlib import Path

import pytest
from sqlalchemy import update
from support.nodes.clock import SimulatedClock
from support.storage.frames import add_job

from trainhall.cluster.notifier import Notifier
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.ports import SystemIds
from trainhall.cluster.secrets.service import SecretService
from trainhall.cluster.service import ServiceContext
from trainhall.db.accounts import Project, User
from trainhall.db.database import Database
from trainhall.db.models import Job


@pytest.fixture
def context(database: Database) -> ServiceContext:
    return ServiceContext(database, SimulatedClock(), SystemIds(), ClusterOptions(), Notifier())


@pytest.fixture
async def secrets(context: ServiceContext, tmp_path: Path) -> SecretService:
    """Secrets of maria, a maintainer, and of otto, a member of the project vision."""
    now = context.clock.now()
    async with context.db.transaction() as session:
        session.add(Project(name="vision", limits={}, created_at=now))
        for name in ("maria", "otto"):
            session.add(User(id=f"u-{name}", name=name, is_admin=False, created_at=now))
    return SecretService(context, tmp_path)


@pytest.fixture
async def job(database: Database, secrets: SecretService) -> str:
    """A running job of otto's in the project vision that asks for two secrets."""
    await add_job(database)
    columns = {"user": "otto", "project": "vision", "spec": {"secrets": ["HF_TOKEN", "KEY"]}}
    async with database.transaction() as session:
        await session.execute(update(Job).where(Job.id == "job").values(**columns))
    return "job"
