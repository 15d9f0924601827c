"""Access of routes to the coordinator's services."""

from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from trainhall.cluster.coordinator import Coordinator


def coordinator_of(connection: HTTPConnection) -> Coordinator:
    coordinator: Coordinator = connection.app.state.coordinator
    return coordinator


async def get_coordinator(connection: HTTPConnection) -> Coordinator:
    return coordinator_of(connection)


CoordinatorDep = Annotated[Coordinator, Depends(get_coordinator)]
