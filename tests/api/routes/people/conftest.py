"""An application that asks for a credential, and people who use it."""

from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from fastapi import FastAPI
from support.login.accounts import Person, cheap_passwords, first_admin


@pytest.fixture(autouse=True)
def _cheap() -> Iterator[None]:
    with cheap_passwords():
        yield


@pytest.fixture
async def app(inline_database: None, make_app: Callable[..., FastAPI]) -> AsyncIterator[FastAPI]:
    made = make_app(auth="token")
    async with made.router.lifespan_context(made):
        yield made


@pytest.fixture
async def admin(app: FastAPI) -> Person:
    return first_admin(app)
