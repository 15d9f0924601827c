"""The real application on both databases."""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from structlog.testing import capture_logs
from support.cluster.web import bearer_of, served
from support.database import ApplicationDatabase

from trainhall.api import startup
from trainhall.api.app import create_app
from trainhall.api.settings import Settings


@pytest.fixture(autouse=True)
def no_settings_of_this_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [n for n in os.environ if n.startswith("TRAINHALL_") or n == "DATABASE_URL"]:
        monkeypatch.delenv(name)
    empty = tmp_path / "empty.toml"
    empty.touch()
    monkeypatch.setenv("TRAINHALL_CONFIG", str(empty))


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[Any]]:
    """What was logged."""
    with capture_logs() as entries:
        yield entries


@pytest.fixture
def make_app(tmp_path: Path, database_url: str) -> Callable[..., FastAPI]:
    """Makes the application on the test's database, and a data folder."""

    def make(folder: str = "data", **settings: Any) -> FastAPI:
        return create_app(
            Settings(data_dir=tmp_path / folder, database_url=database_url, **settings)
        )

    return make


@pytest.fixture
def inline_database(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Applications of the test do without a thread for each statement, unless it is marked as
    `side_by_side`; those behind a real socket have one."""
    if request.node.get_closest_marker("side_by_side") is None:
        monkeypatch.setattr(startup, "Database", ApplicationDatabase)


@pytest.fixture
async def app(inline_database: None, make_app: Callable[..., FastAPI]) -> AsyncIterator[FastAPI]:
    """The application, started."""
    made = make_app()
    async with made.router.lifespan_context(made):
        yield made


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """Speaks to the application as a program of the coordinator's own user does."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://127.0.0.1:8000", headers=bearer_of(app)
    ) as made:
        yield made


@pytest.fixture
def url(make_app: Callable[..., FastAPI]) -> Iterator[str]:
    """The application behind a real socket; it asks for no login."""
    with served(make_app(auth="none")) as address:
        yield address
