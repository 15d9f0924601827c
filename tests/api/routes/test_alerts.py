"""/alerts on both databases: what is answered, and that bad input creates nothing."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
from fastapi import FastAPI
from support.cluster.web import FIRST_ADMIN, served
from support.database import on_sqlite
from websockets.asyncio.client import ClientConnection, connect

ALERTS = "/api/v1/alerts"
WEBHOOK: dict[str, Any] = {
    "name": " failed jobs ",
    "on": ["job.failed", "job.stuck"],
    "target": {"kind": "webhook", "url": "https://example.org/hook"},
}
BROWSER: dict[str, Any] = {"name": "b", "on": ["node.down"], "target": {"kind": "browser"}}


async def test_alert_is_created_read_changed_and_deleted(client: httpx.AsyncClient) -> None:
    made = await client.post(ALERTS, json=WEBHOOK)
    assert made.status_code == 201, made.text
    alert = made.json()
    assert made.headers["location"] == f"{ALERTS}/{alert['id']}"
    assert made.headers["cache-control"] == "no-store"
    assert alert["secret"].startswith("whsec_")
    assert (alert["name"], alert["enabled"], alert["reason"]) == ("failed jobs", True, "")
    assert alert["scope"] == {"kind": "cluster", "value": None}
    path = f"{ALERTS}/{alert['id']}"
    read = (await client.get(path)).json()
    assert read == {key: value for key, value in alert.items() if key != "secret"}
    changed = await client.patch(path, json={"on": ["job.waiting"], "waiting_seconds": 60})
    assert changed.json() == {**read, "on": ["job.waiting"], "waiting_seconds": 60, "secret": None}
    off = (await client.patch(path, json={"enabled": False})).json()
    assert (off["enabled"], off["reason"]) == (False, f"disabled by {FIRST_ADMIN}")
    assert (await client.delete(path)).status_code == 204
    assert (await client.get(path)).status_code == 404
    assert (await client.get(ALERTS)).json()["items"] == []


async def test_new_webhook_target_gets_a_secret(client: httpx.AsyncClient) -> None:
    alert = (await client.post(ALERTS, json=BROWSER)).json()
    assert alert["secret"] is None
    changes = {"target": WEBHOOK["target"]}
    changed = (await client.patch(f"{ALERTS}/{alert['id']}", json=changes)).json()
    assert changed["secret"].startswith("whsec_")
    assert changed["target"] == WEBHOOK["target"]


async def test_test_message_is_in_the_log(client: httpx.AsyncClient) -> None:
    alert = (await client.post(ALERTS, json=BROWSER)).json()
    path = f"{ALERTS}/{alert['id']}"
    ids = []
    for _ in range(2):
        sent = await client.post(f"{path}/test")
        assert sent.status_code == 202
        ids.append(sent.json()["id"])
    page = (await client.get(f"{path}/deliveries", params={"limit": 1})).json()
    rest = await client.get(f"{path}/deliveries", params={"cursor": page["next_cursor"]})
    items = page["items"] + rest.json()["items"]
    assert [item["id"] for item in items] == ids[::-1]
    assert {item["condition"] for item in items} == {"alert.test"}


async def test_alerts_are_paged_in_the_order_of_creation(client: httpx.AsyncClient) -> None:
    ids = [(await client.post(ALERTS, json=BROWSER)).json()["id"] for _ in range(3)]
    page = (await client.get(ALERTS, params={"limit": 2})).json()
    rest = (await client.get(ALERTS, params={"cursor": page["next_cursor"]})).json()
    assert [item["id"] for item in page["items"] + rest["items"]] == ids


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"name": "\n"}, "name", "U+000A (a control character)"),
    ({"on": []}, "on", "must not be empty"),
    ({"on": ["job.done"]}, "on.0", "job.completed"),
    ({"events": []}, "events", "unknown key"),
    ({"waiting_seconds": False}, "waiting_seconds", "number"),
    ({"waiting_seconds": -1}, "waiting_seconds", "at least 0"),
    ({"disk_percent": 101}, "disk_percent", "100"),
    ({"target": {"kind": "pager"}}, "target.kind", "webhook"),
    ({"target": {"kind": "webhook"}}, "target.url", "is required"),
    ({"target": {"kind": "webhook", "url": "http://10.0.0.1"}}, "target.url", "public"),
    ({"target": {"kind": "mail", "url": "mailto:a@b"}}, "target.kind", "sends no mail"),
    ({"scope": {"kind": "user"}}, "scope.value", "the name of the user"),
    ({"scope": {"kind": "cluster", "value": "x"}}, "scope.value", "left out"),
    ({"scope": {"kind": "job", "value": "none"}}, "scope.value", "no such job"),
    ({"scope": {"kind": "user", "value": "ann"}, "on": ["node.down"]}, "scope.kind",
     "node.down, which no user has"),
]  # fmt: skip


@on_sqlite
async def test_bad_alert_creates_nothing(client: httpx.AsyncClient) -> None:
    for changes, field, word in BAD:
        refused = await client.post(ALERTS, json={**WEBHOOK, **changes})
        assert refused.status_code == 422, (changes, refused.text)
        (error,) = refused.json()["errors"]
        assert error["field"] == field, changes
        assert word in error["message"], changes
    assert (await client.get(ALERTS)).json()["items"] == []


@on_sqlite
async def test_bad_change_changes_nothing(client: httpx.AsyncClient) -> None:
    alert = (await client.post(ALERTS, json=BROWSER)).json()
    path = f"{ALERTS}/{alert['id']}"
    for changes, field in (
        ({"scope": {"kind": "user", "value": "ann"}}, "scope.kind"),
        ({"target": {"kind": "slack", "url": "http://localhost/x"}}, "target.url"),
    ):
        refused = await client.patch(path, json=changes)
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, field)
    assert (await client.get(path)).json() == {k: v for k, v in alert.items() if k != "secret"}


@on_sqlite
async def test_unknown_alert_is_not_found(client: httpx.AsyncClient) -> None:
    for method, path in (
        ("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/test"), ("GET", "/deliveries"),
    ):  # fmt: skip
        body: dict[str, Any] | None = {} if method == "PATCH" else None
        answer = await client.request(method, f"{ALERTS}/nothing{path}", json=body)
        assert answer.status_code == 404, (method, path)
        assert "there is no alert 'nothing'" in answer.json()["detail"]


async def message(viewer: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(10):
        answer: dict[str, Any] = json.loads(await viewer.recv())
    return answer


@on_sqlite
async def test_browsers_get_notifications_live_and_afterwards(
    make_app: Callable[..., FastAPI],
) -> None:
    with served(make_app(auth="none")) as url:
        stream = f"ws{url.removeprefix('http')}{ALERTS}/stream"
        async with connect(stream) as viewer, httpx.AsyncClient(base_url=url) as client:
            assert await message(viewer) == {"type": "ready", "sequence": 0}
            alert = (await client.post(ALERTS, json=BROWSER)).json()
            await client.post(f"{ALERTS}/{alert['id']}/test")
            found = await message(viewer)
            assert (found["sequence"], found["title"], found["path"]) == (
                1,
                "Test alert",
                "/alerts",
            )
            async with connect(f"{stream}?after=0") as later:
                assert (await message(later))["sequence"] == 0
                assert await message(later) == found
            async with connect(f"{stream}?after=99") as ahead:
                assert (await message(ahead))["sequence"] == 1
