"""Every error is problem details, and bad input is never a 5xx."""

import shutil
import sqlite3
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from psycopg.errors import DeadlockDetected, DiskFull, ReadOnlySqlTransaction
from sqlalchemy.exc import OperationalError

MEDIA_TYPE = "application/problem+json"
API = "/api/v1"
GETS = [
    "/training/jobs/{id}",
    "/training/jobs/{id}/events",
    "/training/jobs/{id}/logs",
    "/training/jobs/{id}/logs/download",
    "/training/jobs/{id}/attempts",
    "/training/jobs/{id}/packages",
    "/training/jobs/{id}/provenance",
    "/training/jobs/{id}/code",
    "/training/jobs/{id}/code.tar",
    "/training/jobs/{id}/data",
    "/training/jobs/{id}/environment",
    "/training/jobs/{id}/environment/lock",
    "/cluster/nodes/{id}",
    "/metrics/jobs/{id}",
    "/checkpoints/jobs/{id}",
    "/checkpoints/{id}",
    "/checkpoints/{id}/files",
    "/checkpoints/{id}/files/manifest.json",
]
OTHERS = [
    ("DELETE", "/training/jobs/{id}"),
    ("DELETE", "/training/jobs/{id}/record"),
    ("PUT", "/training/jobs/{id}/pause"),
    ("PUT", "/training/jobs/{id}/resume"),
    ("PUT", "/training/jobs/{id}/resize"),
    ("DELETE", "/cluster/nodes/{id}"),
    ("DELETE", "/checkpoints/{id}"),
    ("PUT", "/checkpoints/{id}/pin"),
    ("DELETE", "/checkpoints/{id}/pin"),
    ("POST", "/checkpoints/{id}/restore"),
    ("POST", "/checkpoints/{id}/verify"),
    ("POST", "/checkpoints/jobs/{id}/collect"),
]
STRANGE_IDS = [
    "unknown", "%00", "a%00b", "%ed%a0%80", "%ff", "x" * 10_000, "9" * 400, "-1", "%2e%2e", "%20",
    "%F0%9F%92%A9", "'%20OR%201=1--", "%25", "null",
]  # fmt: skip


def check(reply: httpx.Response, status: int) -> dict[str, Any]:
    assert reply.status_code == status, (reply.request.url, reply.text)
    assert reply.headers["content-type"] == MEDIA_TYPE
    assert reply.headers["cache-control"] == "no-store"
    problem: dict[str, Any] = reply.json()
    assert problem["type"].startswith("urn:problem-type:trainhall:")
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"]
    assert isinstance(problem["errors"], list)
    return problem


async def test_unknown_and_strange_ids(client: httpx.AsyncClient) -> None:
    for method, path in [*(("GET", path) for path in GETS), *OTHERS]:
        for strange in STRANGE_IDS:
            reply = await client.request(method, API + path.replace("{id}", strange))
            check(reply, 404)


UNKNOWN_ROUTES = [
    ("GET", "/api/v1/nothing"),
    ("GET", "/api"),
    ("GET", "/api/v1/training/jobs/"),
    ("POST", "/nothing"),
    ("GET", "/missing.js"),
    ("GET", "/%2e%2e/%2e%2e/app.py"),
    ("GET", "/assets/%00.js"),
    ("GET", "/api/v1/agent/nothing"),
]


async def test_unknown_routes(client: httpx.AsyncClient) -> None:
    for method, path in UNKNOWN_ROUTES:
        check(await client.request(method, path), 404)


OTHER_METHODS = [("PUT", "/api/v1/training/jobs", "GET, POST"),
     ("POST", "/api/v1/training/jobs/x", "DELETE, GET, PATCH"),
     ("GET", "/api/v1/training/jobs/x/pause", "PUT"), ("POST", "/healthz", "GET"),
     ("TRACE", "/api/v1/cluster/queue", "GET"), ("GET", "/api/v1/agent/join", "POST")]  # fmt: skip


async def test_other_methods(client: httpx.AsyncClient) -> None:
    for method, path, allowed in OTHER_METHODS:
        reply = await client.request(method, path)
        problem = check(reply, 405)
        assert reply.headers["allow"] == allowed
        assert allowed in problem["detail"]


BAD_QUERIES = [
    ("/training/jobs", "limit=0", "limit"),
    ("/training/jobs", "limit=-1", "limit"),
    ("/training/jobs", "limit=1001", "limit"),
    ("/training/jobs", "limit=" + "9" * 5000, "limit"),
    ("/training/jobs", "limit=1.5", "limit"),
    ("/training/jobs", "limit=NaN", "limit"),
    ("/training/jobs", "limit=%00", "limit"),
    ("/training/jobs", "limt=5", "limt"),
    ("/training/jobs", "state=sleeping", "state"),
    ("/training/jobs", "sort=sleep", "sort"),
    ("/training/jobs", "sort=metrics.%00", "sort"),
    ("/training/jobs", "query=state:", "query"),
    ("/training/jobs", "query=" + "a" * 1001, "query"),
    ("/training/jobs", "sort=step&cursor=WyJqb2JzIiwxXQ", "cursor"),
    ("/training/jobs", "cursor=x", "cursor"),
    ("/training/jobs", "cursor=%00", "cursor"),
    ("/training/jobs", "cursor=%ed%a0%80", "cursor"),
    ("/training/jobs", "cursor=" + "A" * 600, "cursor"),
    ("/training/jobs", "cursor=WyJub2RlcyIsMV0", "cursor"),
    ("/cluster/nodes", "cursor=x", "cursor"),
    ("/cluster/gpu-status", "cursor=x", "cursor"),
    ("/cluster/queue", "cursor=x", "cursor"),
    ("/cluster/queue", "job_id=" + "a" * 33, "job_id"),
    ("/cluster/quotas", "cursor=x", "cursor"),
    ("/ledger", "cursor=x", "cursor"),
    ("/ledger", "by=team", "by"),
    ("/ledger", "job_id=%00", "job_id"),
    ("/ledger", "format=pdf", "format"),
    ("/ledger", "since=2026-11-27T00:00:00", "since"),
    ("/ledger", "since=2026-11-27T00:00:00Z&until=2026-11-26T00:00:00Z", "since"),
    ("/ledger", "until=0001-01-02T00:00:00Z", "until"),
    ("/ledger", "since=0001-01-01T00:00:00%2B23:00", "since"),
    ("/ledger", "until=9999-12-31T23:59:59-23:00", "until"),
    ("/ledger", "format=csv&until=9999-12-31T23:59:59-23:00", "until"),
    ("/cluster/quotas", "user=ada", "user"),
    ("/training/jobs/{id}/attempts", "cursor=x", "cursor"),
    ("/training/jobs/{id}/events", "after=-1", "after"),
    ("/training/jobs/{id}/events", "after=" + "9" * 30, "after"),
    ("/training/jobs/{id}/events", "cursor=x", "cursor"),
    ("/training/jobs/{id}/events", "cursor=" + "9" * 30, "cursor"),
    ("/training/jobs/{id}/events", "cursor=%C2%B2", "cursor"),
    ("/training/jobs/{id}/logs", "rank=-1", "rank"),
    ("/training/jobs/{id}/logs/download", "stream=stdin", "stream"),
    ("/training/jobs/{id}/logs", "rank=" + "9" * 30, "rank"),
    ("/training/jobs/{id}/logs", "stream=stdin", "stream"),
    ("/training/jobs/{id}/logs", "attempt=0", "attempt"),
    ("/training/jobs/{id}/logs", "after=x", "after"),
    ("/training/jobs/{id}/logs", "after=%00", "after"),
    ("/training/jobs/{id}/logs", "tail=0", "tail"),
    ("/metrics/jobs/{id}", "max_points=0", "max_points"),
    ("/metrics/jobs/{id}", "max_points=" + "9" * 30, "max_points"),
    ("/metrics/jobs/{id}", "from_step=-1", "from_step"),
    ("/metrics/jobs/{id}", "to_step=1e3", "to_step"),
    ("/metrics/jobs/{id}", "names=a%00b", "names"),
    ("/metrics/jobs/{id}", "names=" + "a" * 200, "names"),
    ("/metrics/jobs/{id}", "names=" + ",".join("abcdefgh" for _ in range(70)), "names"),
    ("/metrics/cluster/summary", "verbose=1", "verbose"),
    ("/checkpoints/jobs/{id}", "cursor=x", "cursor"),
]


async def test_bad_queries_are_refused_by_name(client: httpx.AsyncClient) -> None:
    spec = {"name": "digits", "task": {"name": "digits"}}
    job = (await client.post(f"{API}/training/jobs", json=spec)).json()["id"]
    wrong = []
    for path, query, field in BAD_QUERIES:
        reply = await client.get(f"{API}{path.replace('{id}', job)}?{query}")
        fields = [error["field"] for error in reply.json().get("errors", [])]
        if reply.status_code != 422 or field not in fields or len(reply.content) > 2000:
            wrong.append((path, query[:40], reply.status_code, reply.text[:300]))
    assert not wrong


BAD_BODIES = [
    b"[]", b"3", b"null", b'{"name": 3}', b'{"name": ""}', b'{"nmae": "x"}', b'{"name": "a b"}',
    b'{"name": "a\\u0000b"}', b'{"name": "\\ud800"}', b'{"labels": {"a": 1}}', b'{"labels": []}',
    b'{"labels": {"": "x"}}', b'{"labels": {"a": "\\u0000"}}', b"{", b"\xff", b"\x00",
    b'{"name": "' + b"x" * 200 + b'"}', b"[" * 60_000,
]  # fmt: skip


async def test_bad_bodies_register_no_node(client: httpx.AsyncClient) -> None:
    for body in BAD_BODIES:
        reply = await client.post(
            f"{API}/cluster/nodes", content=body, headers={"Content-Type": "application/json"}
        )
        assert check(reply, 422)["errors"], body
    assert (await client.get(f"{API}/cluster/nodes")).json()["items"] == []


async def test_bodies_that_are_no_json_or_too_large(client: httpx.AsyncClient) -> None:
    nodes = f"{API}/cluster/nodes"
    check(await client.post(nodes, content=b"{}", headers={"Content-Type": "text/plain"}), 415)
    large = b'{"name": "' + b"x" * 100_000 + b'"}'
    check(
        await client.post(nodes, content=large, headers={"Content-Type": "application/json"}), 413
    )
    assert (await client.get(nodes)).json()["items"] == []


def _sqlite_error(name: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(name)
    error.sqlite_errorname = name
    return error


@pytest.mark.parametrize("error", [RuntimeError("secret"), MemoryError(), RecursionError()])
async def test_internal_error_shows_only_its_id(
    app: FastAPI,
    client: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    logged: list[Any],
    error: Exception,
) -> None:
    async def fail() -> None:
        raise error

    monkeypatch.setattr(app.state.coordinator.nodes, "summary", fail)
    reply = await client.get(f"{API}/metrics/cluster/summary")
    problem = check(reply, 500)
    assert "secret" not in reply.text
    assert "Traceback" not in reply.text
    request_id = reply.headers["x-request-id"]
    assert problem["instance"] == f"urn:request:{request_id}"
    entries = [entry for entry in logged if entry.get("request_id") == request_id]
    assert [entry["exc_info"] for entry in entries] == [error]


async def test_database_that_does_not_answer(
    app: FastAPI, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        raise OperationalError("SELECT 1", {}, Exception("gone"))

    monkeypatch.setattr(app.state.coordinator.nodes, "summary", fail)
    monkeypatch.setattr(app.state.coordinator.db, "check", fail)
    for path in ("/readyz", f"{API}/metrics/cluster/summary"):
        reply = await client.get(path)
        check(reply, 503)
        assert reply.headers["retry-after"] == "1"
        assert "SELECT" not in reply.text
    health = (await client.get("/healthz")).json()
    assert (health["status"], health["simulated"]) == ("ok", False)


async def test_undone_transaction_is_reported_as_503(
    app: FastAPI, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        raise OperationalError("UPDATE x", {}, DeadlockDetected("deadlock detected"))

    monkeypatch.setattr(app.state.coordinator.nodes, "summary", fail)
    reply = await client.get(f"{API}/metrics/cluster/summary")
    problem = check(reply, 503)
    assert problem["detail"].startswith("nothing was changed")
    assert reply.headers["retry-after"] == "1"


@pytest.mark.parametrize(
    ("cause", "status", "detail"),
    [
        (DiskFull("no space"), 507, "the disk with the database is full; nothing was changed"),
        (_sqlite_error("SQLITE_FULL"), 507, "the disk with the database is full"),
        (ReadOnlySqlTransaction("read-only"), 503, "the database can only be read"),
        (_sqlite_error("SQLITE_READONLY_DBMOVED"), 503, "the database can only be read"),
    ],
)
async def test_database_that_cannot_be_written_says_why(
    app: FastAPI,
    client: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    cause: Exception,
    status: int,
    detail: str,
) -> None:
    async def fail() -> None:
        raise OperationalError("UPDATE x", {}, cause)

    monkeypatch.setattr(app.state.coordinator.nodes, "summary", fail)
    reply = await client.get(f"{API}/metrics/cluster/summary")
    assert check(reply, status)["detail"].startswith(detail)


async def test_full_disk_is_not_ready(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await client.get("/readyz")).status_code == 200
    usage = shutil.disk_usage("/")._replace(free=4096)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert "4 KiB are left" in check(await client.get("/readyz"), 503)["detail"]


async def test_request_ids(client: httpx.AsyncClient) -> None:
    fresh = {(await client.get("/healthz")).headers["x-request-id"] for _ in range(3)}
    assert len(fresh) == 3
    reply = await client.get("/healthz", headers={"X-Request-ID": "my-own-1"})
    assert reply.headers["x-request-id"] == "my-own-1"
    for bad in (b"x" * 65, b"a b", b"a\tb", "é".encode("latin-1")):
        reply = await client.get("/healthz", headers={b"X-Request-ID": bad})
        assert len(reply.headers["x-request-id"]) == 16


@pytest.mark.parametrize(("address", "message"), [
    ("/training/jobs?limit=0", "limit: must be at least 1 (given: 0)"),
    ("/training/jobs?limit=many", "limit: must be an integer (given: many)"),
    ("/metrics/jobs/000000000000?max_points=-3", "max_points: must be at least 1 (given: -3)"),
])  # fmt: skip
async def test_out_of_range_problem_names_field_and_bounds(
    client: httpx.AsyncClient, address: str, message: str
) -> None:
    problem = check(await client.get(API + address), 422)
    assert problem["detail"] == message


async def test_truth_value_is_no_number(client: httpx.AsyncClient) -> None:
    spec = {"name": "x", "task": {"name": "digits"}, "training": {"steps": True}}
    problem = check(await client.post(f"{API}/training/jobs", json=spec), 422)
    assert problem["detail"] == "training.steps: must be an integer (given: true)"
