"""Nodes through the API: register, join, connect, remove; and what agents ship."""

import asyncio
import hashlib
import itertools
import json
import shlex
import struct
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from support.cluster.web import FIRST_ADMIN

API = "/api/v1"
DEVICES = [{"index": 0, "kind": "cpu", "name": "slot", "memory_total": 1}]


def joining(token: str, **changes: Any) -> dict[str, Any]:
    return {
        "join_token": token, "name": "here", "address": "127.0.0.1", "agent_version": "0.1.0",
        "protocol_version": 1, "devices": DEVICES, **changes,
    }  # fmt: skip


async def registered(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    reply = await client.post(f"{API}/cluster/nodes", json=body)
    assert reply.status_code == 201, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


async def credential(client: httpx.AsyncClient) -> dict[str, str]:
    node = await registered(client)
    reply = await client.post(f"{API}/agent/join", json=joining(node["join_token"]))
    assert reply.status_code == 200, reply.text
    return {"Authorization": f"Bearer {reply.json()['credential']}"}


@pytest.mark.parametrize(
    "device",
    [{"memory_total": 10**30}, {"memory_total": -1}, {"index": 10**30}, {"index": 2**31},
     {"index": -1}, {"kind": "tpu"}, {"name": 1}],
    ids=str,
)  # fmt: skip
async def test_host_with_absurd_devices_does_not_join(
    client: httpx.AsyncClient, device: dict[str, Any]
) -> None:
    token = (await registered(client))["join_token"]
    devices = [{**DEVICES[0], **device}]
    reply = await client.post(f"{API}/agent/join", json=joining(token, devices=devices))
    assert reply.status_code == 422, reply.text
    assert next(iter(device)) in reply.text
    assert (await client.post(f"{API}/agent/join", json=joining(token))).status_code == 200


async def test_host_joins_with_strange_texts(client: httpx.AsyncClient) -> None:
    """None is of use as it is, and none makes the database fail."""
    token = (await registered(client))["join_token"]
    devices = [{**DEVICES[0], "name": "\0" * 5000, "uuid": "x" * 5000}, DEVICES[0]]
    strange = {"name": "\u202e" * 5000, "address": "\ud800" * 5000, "agent_version": "9" * 5000}
    reply = await client.post(
        f"{API}/agent/join", content=json.dumps(joining(token, devices=devices, **strange)),
        headers={"Content-Type": "application/json"},
    )  # fmt: skip
    assert reply.status_code in (200, 422), reply.text


async def test_a_node_is_registered_with_a_command(client: httpx.AsyncClient) -> None:
    node = await registered(client, name="gpu-07", labels={"rack": "b"})
    words = shlex.split(node["command"])
    assert words[:3] == [f"TRAINHALL_JOIN_TOKEN={node['join_token']}", "trainhall", "agent"]
    assert words[words.index("--coordinator") + 1] == "http://127.0.0.1:8000"
    assert "loopback only" in node["note"]
    listed = (await client.get(f"{API}/cluster/nodes")).json()["items"]
    assert [(n["name"], n["state"], n["labels"]) for n in listed] == [
        ("gpu-07", "pending", {"rack": "b"})
    ]
    one = await client.get(f"{API}/cluster/nodes/{node['id']}")
    assert one.json() == listed[0]
    unnamed = await client.post(f"{API}/cluster/nodes")
    assert unnamed.status_code == 201, "the body is optional"


async def test_a_node_has_a_history(client: httpx.AsyncClient) -> None:
    node = await registered(client)
    path = f"{API}/cluster/nodes/{node['id']}/history"
    assert (await client.get(path)).json() == {"items": []}
    days = {"since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00+02:00"}
    assert (await client.get(path, params=days)).status_code == 200
    for query in ({"since": "yesterday"}, {"until": "2026-01-01T00:00:00"}, {"max_points": 0},
                  {"until": "0001-01-01T00:00:00Z"}):  # fmt: skip
        reply = await client.get(path, params=query)
        assert reply.status_code == 422, reply.text
        assert [error["field"] for error in reply.json()["errors"]] == list(query)
    assert (await client.get(f"{API}/cluster/nodes/nosuchnode/history")).status_code == 404


def bearer(reply: httpx.Response) -> dict[str, str]:
    return {"Authorization": f"Bearer {reply.json()['credential']}"}


async def test_a_token_is_good_for_one_credential(client: httpx.AsyncClient) -> None:
    node = await registered(client)
    # The answer of the first may have been lost: nothing was heard of the node yet.
    replies = [
        await client.post(f"{API}/agent/join", json=joining(node["join_token"])) for _ in range(2)
    ]
    assert [reply.status_code for reply in replies] == [200, 200]
    known = [
        (await client.get(f"{API}/agent/code/{'0' * 64}", headers=bearer(reply))).status_code
        for reply in replies
    ]
    assert known == [401, 404]
    for token in ("nonsense", ""):
        again = await client.post(f"{API}/agent/join", json=joining(token))
        assert again.status_code == 401
        assert again.headers["content-type"] == "application/problem+json"
        assert again.headers["www-authenticate"] == "Bearer"
    old = joining(node["join_token"], protocol_version=0)
    assert (await client.post(f"{API}/agent/join", json=old)).status_code == 426


async def test_a_node_that_never_joined_goes_at_once(client: httpx.AsyncClient) -> None:
    node = await registered(client)
    reply = await client.delete(f"{API}/cluster/nodes/{node['id']}")
    assert reply.status_code in (202, 204)
    assert (await client.get(f"{API}/cluster/nodes")).json()["items"] == []


ROUTES = [
    ("POST", "/agent/jobs/abc/attempts/1/metrics?writer=0-0a0a0a0a"),
    ("POST", "/agent/jobs/abc/attempts/1/events?writer=0-0a0a0a0a"),
    ("POST", "/agent/jobs/abc/attempts/1/logs?rank=0&stream=stdout&offset=0"),
    ("PUT", "/agent/jobs/abc/checkpoints/step-00000001-a1-g1/files/x"),
    ("GET", "/agent/jobs/abc/checkpoints/step-00000001-a1-g1/files/x"),
    ("POST", "/agent/jobs/abc/checkpoints/step-00000001-a1-g1/commit"),
    ("POST", "/agent/jobs/abc/checkpoints/step-00000001-a1-g1/verify"),
    ("GET", "/agent/jobs/abc/attempts/1/outputs?rank=0"),
    ("POST", "/agent/jobs/abc/attempts/1/outputs"),
    ("POST", "/agent/jobs/abc/attempts/1/outputs/received"),
    ("PUT", f"/agent/jobs/abc/attempts/1/outputs/contents/{'0' * 64}?size=1"),
    ("POST", "/agent/jobs/abc/attempts/1/outputs/contents"),
    ("GET", f"/agent/jobs/abc/outputs/contents/{'0' * 64}"),
]


async def test_agents_routes_need_a_credential(client: httpx.AsyncClient) -> None:
    for method, path in ROUTES:
        for headers in ({}, {"Authorization": "Bearer nonsense"}, {"Authorization": "Basic eDp5"},
                        {"Authorization": "Bearer"}):  # fmt: skip
            reply = await client.request(method, API + path, headers=headers)
            assert reply.status_code == 401, reply.text
            assert reply.headers["content-type"] == "application/problem+json"


async def test_upload_for_unknown_attempt_is_refused(client: httpx.AsyncClient) -> None:
    headers = await credential(client)
    for method, path in ROUTES:
        for changed in (
            path,
            path.replace("/abc/", "/%00/"),
            path.replace("/1/", "/99999999999999/"),
        ):
            reply = await client.request(method, API + changed, headers=headers)
            assert reply.status_code in (404, 422), (changed, reply.text)


BAD_SHIPMENTS: list[tuple[str, bytes]] = [
    ("/metrics?writer=w", b"garbage"),
    ("/metrics?writer=w", struct.pack("<IIII", 2**32 - 1, 2**32 - 1, 7, 7)),
    ("/metrics?writer=" + "w" * 100, b""),
    ("/metrics?writer=%00", b""),
    ("/metrics", b""),
    ("/events?writer=w", b"{}"),
    ("/events?writer=w", b"not json"),
    ("/events?writer=w", b'{"sequence": 1e400, "time": 0, "rank": 0, "kind": "note"}'),
    ("/logs?rank=-1&stream=stdout&offset=0", b"x"),
    ("/logs?rank=0&stream=stdin&offset=0", b"x"),
    ("/logs?rank=0&stream=stdout&offset=-1", b"x"),
    ("/logs?rank=0&stream=stdout&offset=99999999999999999999", b"x"),
    ("/logs?rank=0&stream=stdout", b"x"),
]


async def test_damaged_shipments_are_refused(client: httpx.AsyncClient) -> None:
    headers = await credential(client)
    job = (
        await client.post(
            f"{API}/training/jobs",
            json={"name": "x", "task": {"name": "digits"}, "resources": {"device": "cpu"}},
        )
    ).json()["id"]
    for path, body in BAD_SHIPMENTS:
        reply = await client.post(
            f"{API}/agent/jobs/{job}/attempts/1{path}", content=body, headers=headers
        )
        assert reply.status_code in (404, 422), (path, reply.text)
        assert reply.headers["content-type"] == "application/problem+json"


async def test_a_batch_beyond_the_limit_is_refused(client: httpx.AsyncClient) -> None:
    headers = await credential(client)
    reply = await client.post(
        f"{API}/agent/jobs/abc/attempts/1/logs?rank=0&stream=stdout&offset=0",
        content=bytes(17 * 1024 * 1024), headers=headers,
    )  # fmt: skip
    assert reply.status_code == 413


PATHS = ["../../x", "%2e%2e/x", "a/../../x", "/etc/passwd", "x.part", "a" * 600, "%00", "a//b"]


async def test_uploads_stay_within_their_checkpoint(
    app: FastAPI, client: httpx.AsyncClient
) -> None:
    headers = await credential(client)
    before = await asyncio.to_thread(_files, app)
    names = ("step-00000001-a1-g1", "..", "step")
    for name, path in itertools.product(names, PATHS):
        reply = await client.put(
            f"{API}/agent/jobs/abc/checkpoints/{name}/files/{path}?sha256="
            + hashlib.sha256(b"x").hexdigest(),
            content=b"x", headers=headers,
        )  # fmt: skip
        assert reply.status_code in (404, 405, 422), reply.text
    assert await asyncio.to_thread(_files, app) == before


def _files(app: FastAPI) -> set[str]:
    folder = app.state.settings.data_dir
    return {str(path) for path in folder.rglob("*") if "trainhall.db" not in path.name}


async def test_a_drain_is_asked_for_and_taken_back(client: httpx.AsyncClient) -> None:
    node = await registered(client, name="gpu-07")
    path = f"{API}/cluster/nodes/{node['id']}"
    reply = await client.post(f"{path}/drain", json={"reason": "new disk"})
    assert reply.status_code == 200, reply.text
    why = f"drained by {FIRST_ADMIN}: new disk"
    assert (reply.json()["state"], reply.json()["drain_reason"]) == ("pending", why)
    assert (await client.post(f"{path}/drain")).json()["drain_reason"] == why
    assert (await client.post(f"{path}/undrain")).json()["drain_reason"] is None
    events = (await client.get(f"{path}/events")).json()["items"]
    assert [e["reason"] for e in events] == [
        f"registered by {FIRST_ADMIN}, not yet joined", f"drain requested: {why}",
        f"undrained by {FIRST_ADMIN}",
    ]  # fmt: skip
    for body, field in (({"reason": ""}, "reason"), ({"reason": "a\nb"}, "reason"),
                        ({"why": "x"}, "why"), ({"reason": 7}, "reason")):  # fmt: skip
        reply = await client.post(f"{path}/drain", json=body)
        assert reply.status_code == 422, reply.text
        assert reply.json()["errors"][0]["field"] == field
    for method, end in (("POST", "/drain"), ("POST", "/undrain"), ("GET", "/events")):
        reply = await client.request(method, f"{API}/cluster/nodes/nosuchnode{end}")
        assert reply.status_code == 404


async def test_labels_are_changed_one_by_one(client: httpx.AsyncClient) -> None:
    node = await registered(client, labels={"rack": "b", "gpu": "a100"})
    path = f"{API}/cluster/nodes/{node['id']}"
    changed = await client.patch(path, json={"labels": {"rack": None, "zone": "x"}})
    assert changed.status_code == 200, changed.text
    assert changed.json()["labels"] == {"gpu": "a100", "zone": "x"}
    for body in ({}, {"labels": {"a b": "x"}}, {"labels": {"zone": "a\nb"}}, {"labels": {"": "x"}},
                 {"name": "other", "labels": {}}):  # fmt: skip
        reply = await client.patch(path, json=body)
        assert reply.status_code == 422, reply.text
    assert (await client.get(path)).json()["labels"] == {"gpu": "a100", "zone": "x"}


async def test_removed_node_is_refused_for_good(client: httpx.AsyncClient) -> None:
    mine = await credential(client)
    (node,) = (await client.get(f"{API}/cluster/nodes")).json()["items"]
    assert (await client.delete(f"{API}/cluster/nodes/{node['id']}")).status_code == 204
    reply = await client.post(
        f"{API}/agent/jobs/abc/attempts/1/metrics?writer=0-0a0a0a0a", headers=mine
    )
    assert (reply.status_code, reply.json()["type"].rpartition(":")[2]) == (410, "node-removed")
