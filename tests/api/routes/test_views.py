"""Saved views of the list of jobs through the API."""

from typing import Any

import httpx
from support.database import on_sqlite

API = "/api/v1/views"
VIEW: dict[str, Any] = {
    "state": ["failed"], "search": "net", "query": "-user:maria", "sort": "-gpu_hours",
    "columns": ["name", "metrics.val/f1.max"], "pinned": 1, "group": "user",
}  # fmt: skip
DEFAULT: dict[str, Any] = {
    "state": [], "search": "", "query": "", "sort": "", "columns": [], "pinned": 0, "group": None,
}  # fmt: skip


async def test_views_are_saved_listed_and_deleted(client: httpx.AsyncClient) -> None:
    for name, view in (("nightly runs", VIEW), ("All", {})):
        reply = await client.post(API, json={"name": name, **view})
        assert reply.status_code == 201, reply.text
    first, second = (await client.get(API)).json()["items"]
    assert first.pop("created_at")
    assert first == {"name": "All", **DEFAULT}
    assert {key: second[key] for key in VIEW} == VIEW
    reply = await client.post(API, json={"name": "All", **VIEW})
    assert reply.status_code == 409
    assert "use another name, or delete it first" in reply.json()["detail"]
    page = (await client.get(API, params={"limit": 1})).json()
    rest = (await client.get(API, params={"cursor": page["next_cursor"]})).json()
    assert [view["name"] for view in rest["items"]] == ["nightly runs"]
    assert (await client.delete(f"{API}/nightly%20runs")).status_code == 204
    reply = await client.delete(f"{API}/nightly%20runs")
    assert (reply.status_code, reply.json()["detail"]) == (404, "there is no view 'nightly runs'")
    assert [view["name"] for view in (await client.get(API)).json()["items"]] == ["All"]


IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "name"),
    ({"name": "a/b"}, "name"),
    ({"name": "a" * 65}, "name"),
    ({"state": ["faild"]}, "state.0"),
    ({"query": "lr>"}, "query"),
    ({"sort": "nmae"}, "sort"),
    ({"search": "\0"}, "search"),
    ({"columns": [""]}, "columns.0"),
    ({"columns": ["a"] * 41}, "columns"),
    ({"pinned": -1}, "pinned"),
    ({"group": "owner"}, "group"),
    ({"pinned": True}, "pinned"),
    ({"more": 1}, "more"),
]


@on_sqlite
async def test_impossible_view_is_refused(client: httpx.AsyncClient) -> None:
    for change, field in IMPOSSIBLE:
        reply = await client.post(API, json={"name": "v", **VIEW, **change})
        assert reply.status_code == 422, reply.text
        assert [error["field"] for error in reply.json()["errors"]] == [field], change
    assert (await client.get(API)).json()["items"] == []
