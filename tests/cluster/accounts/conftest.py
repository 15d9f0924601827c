"""Services of accounts, and users of them."""

from collections.abc import AsyncIterator

import pytest
from support.nodes.clock import SimulatedClock

from trainhall.cluster.access.principal import Principal
from trainhall.cluster.accounts.service import AccountService
from trainhall.cluster.notifier import Notifier
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.ports import SystemIds
from trainhall.cluster.service import ServiceContext
from trainhall.db.database import Database


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def context(database: Database, clock: SimulatedClock) -> ServiceContext:
    return ServiceContext(database, clock, SystemIds(), ClusterOptions(), Notifier())


@pytest.fixture
async def accounts(context: ServiceContext) -> AsyncIterator[AccountService]:
    service = AccountService(context)
    yield service
    # Uses are stored beside the test, by connections that would be lost with its loop.
    await service.stop()


@pytest.fixture
async def maria(accounts: AccountService) -> Principal:
    """An admin."""
    return await accounts.ensure_admin("maria")
