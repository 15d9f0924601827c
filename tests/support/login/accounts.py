"""Passwords that are hashed quickly, and users who log in with them."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import httpx
from fastapi import FastAPI
from pwdlib import PasswordHash
from pwdlib.hashers.argon2 import Argon2Hasher
from support.cluster.web import bearer_of

from trainhall.cluster.accounts import passwords

OWN = "http://127.0.0.1:8000"
PASSWORD = "correct horse battery"


@contextmanager
def cheap_passwords() -> Iterator[None]:
    """Hash with little memory: tests are not attacked."""
    hasher = PasswordHash((Argon2Hasher(time_cost=1, memory_cost=8, parallelism=1),))
    unknown = hasher.hash("password of no user")
    with (
        patch.object(passwords, "_hasher", lambda: hasher),
        patch.object(passwords, "OF_NO_USER", unknown),
    ):
        yield


class Person(httpx.AsyncClient):
    """A browser or a program of a user of an application in this process.

    Paths are relative to /api/v1.
    """

    def __init__(self, app: FastAPI, token: str | None = None) -> None:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        super().__init__(transport=transport, base_url=f"{OWN}/api/v1", headers=headers)
        self.app = app

    async def log_in(self, name: str, password: str = PASSWORD) -> httpx.Response:
        return await self.post("auth/login", json={"name": name, "password": password})

    async def token(self, name: str, **reach: object) -> "Person":
        """The same user with a new API token."""
        made = await self.post("auth/tokens", json={"name": name, **reach})
        assert made.status_code == 201, made.text
        return Person(self.app, made.json()["token"])


def first_admin(app: FastAPI) -> Person:
    """The first admin of a started application, by their token."""
    return Person(app, bearer_of(app)["Authorization"].removeprefix("Bearer "))


async def new_person(app: FastAPI, name: str, **roles: str) -> Person:
    """A user who was just added, with these roles by project, logged in.

    Projects that there are not are added.
    """
    admin, person = first_admin(app), Person(app)
    added = await admin.post("users", json={"name": name, "password": PASSWORD})
    assert added.status_code == 201, added.text
    for project, role in roles.items():
        await admin.post("projects", json={"name": project})
        path = f"projects/{project}/members/{name}"
        assert (await admin.put(path, json={"role": role})).status_code == 204
    assert (await person.log_in(name)).status_code == 204
    return person
