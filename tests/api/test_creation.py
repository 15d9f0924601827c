"""POST of jobs and experiments: the Idempotency-Key, and the owner."""

import asyncio
from typing import Any

import httpx
import pytest

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
@pytest.mark.side_by_side
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
async def test_owner_is_by_default_the_caller(
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


@pytest.mark.parametrize(("name", "known"), [("ada", True), ("a" * 129, False), ("a\nb", False)])
def test_login_name_is_one_that_an_owner_may_have(
    monkeypatch: pytest.MonkeyPatch, name: str, known: bool
) -> None:
    monkeypatch.setenv("LOGNAME", name)
    assert login_name() == (name if known else None)
