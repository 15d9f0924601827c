"""Quotas and their use through the API."""

from collections.abc import Callable

import httpx
from fastapi import FastAPI

from trainhall.cluster.quotas import Quotas

API = "/api/v1"


async def test_quotas_are_listed_with_use_in_pages(
    make_app: Callable[..., FastAPI],
) -> None:
    app = make_app(quotas=Quotas(projects={"vision": 16}, users={"*": 8}), auth="none")
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client,
    ):
        spec = {"name": "digits", "task": {"name": "digits"}, "training": {"steps": 20}}
        for user in ("ada", "bob"):
            reply = await client.post(f"{API}/training/jobs", json={**spec, "user": user})
            assert reply.status_code == 201, reply.text
        path = f"{API}/cluster/quotas"
        page = (await client.get(f"{path}?limit=2")).json()
        assert page["items"] == [
            {"kind": "project", "name": "default", "limit": None, "used": 0, "waiting": 2},
            {"kind": "project", "name": "vision", "limit": 16, "used": 0, "waiting": 0},
        ]
        assert page["others"] == {"project": None, "user": 8}
        page = (await client.get(f"{path}?limit=2&cursor={page['next_cursor']}")).json()
        assert page["next_cursor"] is None
        assert page["items"][0] == {
            "kind": "user", "name": "ada", "limit": 8, "used": 0, "waiting": 1,
        }  # fmt: skip
        assert [item["name"] for item in page["items"]] == ["ada", "bob"]
