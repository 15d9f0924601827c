"""An application that asks for credentials, with two projects."""

from collections.abc import AsyncIterator, Callable

import httpx
import pytest
from fastapi import FastAPI
from support.access.projects import Projects
from support.access.world import World


@pytest.fixture
async def projects(
    inline_database: None, make_app: Callable[..., FastAPI]
) -> AsyncIterator[Projects]:
    """Two projects behind the application's routes."""
    # No agent speaks for the node; it is not given up all the same.
    app = make_app(auth="token", suspect_after=3600, lost_after=7200)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client,
    ):
        yield Projects(app, await World.make(app.state.coordinator), client)
