"""/cluster/what-if on both databases: what is answered, and what is refused."""

import asyncio
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from support.database import on_sqlite

from trainhall.api.bodies import unless_disconnected
from trainhall.api.problems import RefusalError

WHAT_IF = "/api/v1/cluster/what-if"


async def test_empty_cluster_is_compared(client: httpx.AsyncClient) -> None:
    answer = await client.post(WHAT_IF, json={"add": [{"nodes": 2, "devices": 8}], "days": 7})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    side: dict[str, Any] = {
        "waits": None, "never_started": 0, "causes": [], "first_starts": 0, "utilization": 0.0,
    }  # fmt: skip
    assert found["before"] == {"devices": {}, **side}
    assert found["after"] == {"devices": {"cpu": 16}, **side}
    assert (found["compared"], found["no_longer_started"], found["warning"]) == (0, 0, None)
    assert (found["days"], found["jobs"], found["recorded"], found["accounts"]) == (7, 0, None, [])


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"days": 0}, "days", "must be"),
    ({"days": 1e9}, "days", "must be at most 3,650"),
    ({"add": [{"nodes": 0, "devices": 8}]}, "add.0.nodes", "must be at least 1"),
    ({"add": [{"nodes": 1, "devices": 65}]}, "add.0.devices", "must be at most 64"),
    (
        {"add": [{"nodes": 1, "devices": 1, "device": "tpu"}]},
        "add.0.device",
        "must be one of cpu, cuda",
    ),
    ({"remove": ["gpu-09"]}, "remove", "there is no such node in service; there are: none"),
    ({"quotas": {"projects": {"a": -1}}}, "quotas.projects.a", "must be at least 0"),
    ({"priorities": {"teams": {}}}, "priorities.teams", "unknown"),
]


@on_sqlite
async def test_bad_question_is_refused(client: httpx.AsyncClient) -> None:
    for question, field, message in BAD:
        answer = await client.post(WHAT_IF, json=question)
        assert answer.status_code == 422, question
        (error,) = answer.json()["errors"]
        assert error["field"] == field, question
        assert message in error["message"], question


async def test_work_ends_with_its_connection() -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    cancelled = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(RefusalError, match="the connection was closed"):
        await unless_disconnected(Request({"type": "http"}, receive), work())
    assert cancelled.is_set()
