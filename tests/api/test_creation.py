"""POST of jobs and experiments: the Idempotency-Key, and the owner."""

import asyncio
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import Request

from trainhall.api.creation import local_user
from trainhall.api.host.login_name import login_name

JOB: dict[str, Any] = {"name": "digits", "task": {"name": "digits"}}
SWEEP: dict[str, Any] = {
    "name": "rates",
    "kind": "sweep",
    "job": JOB,
    "space": {"training.learning_rate": [0.5, 0.25]},
    "method": "grid",
    "objective": {"metric": "eval_accuracy"},
}

both = pytest.mark.parametrize(
    ("path", "document"), [("/api/v1/training/jobs", JOB), ("/api/v1/experiments", SWEEP)]
)


@both
async def test_idempotency_key_creates_once(
    client: httpx.AsyncClient, path: str, document: dict[str, Any]
) -> None:
    headers = {"Idempotency-Key": "nightly"}
    replies = await asyncio.gather(
        *(client.post(path, json=document, headers=headers) for _ in range(5))
    )
    assert {reply.status_code for reply in replies} == {201}
    assert len({reply.headers["Location"] for reply in replies}) == 1
    assert sum("Idempotency-Replayed" in reply.headers for reply in replies) == 4
    assert (await client.get(replies[0].headers["Location"])).json()["name"] == document["name"]
    other = await client.post(path, json={**document, "name": "other"}, headers=headers)
    problem = other.json()
    assert (other.status_code, problem["title"]) == (409, "Conflict")
    assert "'nightly' was used for another body" in problem["detail"]
    for bad in ("", "x" * 256):
        reply = await client.post(path, json=document, headers={"Idempotency-Key": bad})
        assert reply.status_code == 422
        assert reply.json()["errors"][0]["field"] == "Idempotency-Key"
    assert len((await client.get(path)).json()["items"]) == 1


@both
async def test_owner_is_by_default_who_runs_the_coordinator(
    client: httpx.AsyncClient, path: str, document: dict[str, Any]
) -> None:
    checked = (await client.post(path, json=document, params={"dry_run": True})).json()["spec"]
    assert checked.get("job", checked)["user"] == login_name()
    owned: dict[str, Any] = {**document, "user": "ada"}
    if "job" in document:
        owned = {**document, "job": {**JOB, "user": "ada"}}
    checked = (await client.post(path, json=owned, params={"dry_run": True})).json()["spec"]
    assert checked.get("job", checked)["user"] == "ada"
    assert (await client.post(path, json=document)).is_success
    mine = await client.get("/api/v1/training/jobs/groups?by=user&query=user:me")
    assert {group["value"] for group in mine.json()["items"]} <= {login_name()}


async def test_caller_may_say_who_they_are(client: httpx.AsyncClient) -> None:
    await client.post("/api/v1/training/jobs", json={**JOB, "user": "ada"})
    for path in ("/api/v1/training/jobs?", "/api/v1/training/jobs/groups?by=user&"):
        found = [
            (await client.get(f"{path}query=user:me&me={me}")).json()["items"]
            for me in ("ada", "jo")
        ]
        assert list(map(len, found)) == [1, 0], path


async def test_name_of_a_caller_has_no_control_characters(client: httpx.AsyncClient) -> None:
    for path in ("/api/v1/training/jobs?", "/api/v1/training/jobs/groups?by=user&"):
        reply = await client.get(f"{path}query=user:me&me=a%00")
        assert (reply.status_code, reply.json()["errors"][0]["field"]) == (422, "me"), path


@pytest.mark.parametrize(("address", "user"), [("::1", "ada"), ("10.0.0.5", None)])
def test_local_user_is_known_over_loopback_alone(address: str, user: str | None) -> None:
    app = SimpleNamespace(state=SimpleNamespace(login_name="ada"))
    assert local_user(Request({"type": "http", "server": (address, 8000), "app": app})) == user


@pytest.mark.parametrize(("name", "known"), [("ada", True), ("a" * 129, False), ("a\nb", False)])
def test_login_name_is_one_that_an_owner_may_have(
    monkeypatch: pytest.MonkeyPatch, name: str, known: bool
) -> None:
    monkeypatch.setenv("LOGNAME", name)
    assert login_name() == (name if known else None)
