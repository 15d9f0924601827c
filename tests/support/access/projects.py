"""Requests of users of two projects."""

from dataclasses import dataclass
from typing import Any

import httpx
from fastapi import FastAPI
from support.access.world import World

from trainhall.cluster.coordinator import Coordinator


@dataclass(frozen=True)
class Projects:
    """The application, its two projects, and a client of it."""

    app: FastAPI
    world: World
    client: httpx.AsyncClient

    @property
    def coordinator(self) -> Coordinator:
        return self.world.coordinator

    def header(self, who: str) -> dict[str, str]:
        """The credential of a user."""
        return {"Authorization": f"Bearer {self.world.tokens[who]}"}

    async def ask(self, who: str, method: str, path: str, **more: Any) -> httpx.Response:
        """Send a request of a user below /api/v1."""
        headers = self.header(who) | more.pop("headers", {})
        return await self.client.request(method, f"/api/v1{path}", headers=headers, **more)
