"""The audit log: each operation that changes something leaves a row, and each refusal; no row has
a secret."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import select, update
from support.archives import archive
from support.cluster.web import bearer_of
from support.database import on_sqlite
from support.storage.finished_jobs import add_finished_jobs

from trainhall.api.login.command_logins import challenge_of
from trainhall.api.login.refusals import PREPARING, READ, action_of
from trainhall.api.openapi_document import document
from trainhall.cluster.accounts.secrets import token_of
from trainhall.cluster.api_paths import API_PREFIX
from trainhall.db.accounts import AuditEntry
from trainhall.db.database import Database
from trainhall.db.models import Checkpoint

OWN = "http://127.0.0.1:8000"
SPEC = {"name": "net", "task": {"name": "digits"}, "training": {"steps": 5}}
SWEEP = {
    "name": "rates", "kind": "sweep", "method": "grid", "job": SPEC,
    "space": {"training.learning_rate": [0.1, 0.2]}, "objective": {"metric": "loss", "goal": "min"},
}  # fmt: skip
HOOK = "https://example.org/canary-of-a-webhook"
"""What only the channel of a team may know."""


@pytest.fixture
async def closed(inline_database: None, make_app: Callable[..., FastAPI]) -> AsyncIterator[FastAPI]:
    made = make_app(auth="token")
    async with made.router.lifespan_context(made):
        yield made


@pytest.fixture
async def admin(closed: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """The first admin, by API token."""
    transport = httpx.ASGITransport(closed, raise_app_exceptions=False, client=("192.0.2.7", 4711))
    async with httpx.AsyncClient(
        transport=transport, base_url=OWN, headers=bearer_of(closed)
    ) as made:
        yield made


ELSEWHERE = ("take_stacks", "profile_job", "create_port_link")
"""Operations that need a job that runs: their rows are looked at in `access/test_sessions.py`,
`access/test_forwarded_pages.py` and `tests/acceptance/tunnels/test_profiles.py`."""


def _mutating() -> dict[str, tuple[str, str]]:
    """Method and path of the operations that change something, by the function's name."""
    found = {}
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            name = "".join(f"_{c.lower()}" if c.isupper() else c for c in operation["operationId"])
            if action_of(name, method.upper()) != READ and name not in PREPARING:
                found[name] = (method.upper(), path)
    return found


class Walk:
    """Sends one request after the other, and looks at the row that each leaves."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self.operations = _mutating()
        self.walked: list[str] = []
        self.secrets: list[str] = []

    async def step(
        self,
        operation: str,
        json: Any = None,
        content: bytes | None = None,
        of: str | None = None,
        **path: str,
    ) -> Any:
        """Send a request that succeeds; return what it was answered with.

        Args:
            of: the object in its row, if it is not the last one in the path.
        """
        method, pattern = self.operations[operation]
        before = await self._newest()
        reply = await self._client.request(
            method, pattern.format_map(path), json=json, content=content
        )
        assert reply.status_code < 300, f"{operation}: {reply.text}"
        page = await self._client.get(f"{API_PREFIX}/audit", params={"limit": 5})
        rows = [row for row in page.json()["items"] if row["id"] > before]
        actions = [row["action"] for row in rows]
        assert actions == [action_of(operation, method)], f"{operation} left {actions}"
        (row,) = rows
        assert (row["outcome"], row["address"]) == ("done", "192.0.2.7"), row
        if path:
            assert row["object"] == (of or next(reversed(path.values()))), row
        self.walked.append(operation)
        return reply.json() if reply.content else None

    async def _newest(self) -> int:
        page = (await self._client.get(f"{API_PREFIX}/audit", params={"limit": 1})).json()
        return page["items"][0]["id"] if page["items"] else 0


async def test_every_change_leaves_one_row_without_secrets(
    closed: FastAPI, admin: httpx.AsyncClient, tmp_path: Path
) -> None:
    walk = Walk(admin)
    await _walk_jobs(walk)
    await _walk_checkpoints(walk, closed.state.coordinator.db, tmp_path)
    await _walk_nodes(walk)
    await _walk_experiments(walk)
    await _walk_others(walk)
    await _walk_secrets(walk)
    await _walk_logins(walk, admin)
    await _walk_people(walk, admin)
    walked = {*walk.walked, *ELSEWHERE}
    assert walked == set(walk.operations), "an operation that changes something"
    await _check_no_secrets(walk, closed)


async def _walk_jobs(walk: Walk) -> None:
    job = (await walk.step("submit_job", SPEC))["id"]
    await walk.step("change_job", {"add_tags": ["a"], "notes": "Best."}, job_id=job)
    await walk.step("capture_gradients", job_id=job)
    await walk.step("pause_job", job_id=job)
    await walk.step("resize_job", {"workers": 2}, job_id=job)
    await walk.step("resume_job", job_id=job)
    await walk.step("cancel_job", job_id=job)
    await walk.step("delete_job", job_id=job)
    sha256, data = archive(train="print(1)")
    await walk.step("put_code", content=data, sha256=sha256)


async def _walk_checkpoints(walk: Walk, database: Database, folder: Path) -> None:
    await add_finished_jobs(database, 2)
    async with database.session() as session:
        query = select(Checkpoint.id, Checkpoint.job_id).where(Checkpoint.state == "committed")
        (first, job), (second, _) = (await session.execute(query.order_by(Checkpoint.id))).all()
    await walk.step("pin_checkpoint", checkpoint_id=first)
    await walk.step("unpin_checkpoint", checkpoint_id=first)
    await walk.step("collect_checkpoints", job_id=job)
    await walk.step("restore_checkpoint", checkpoint_id=first)
    async with database.transaction() as session:
        seen = update(Checkpoint).where(Checkpoint.id == second).values(location=str(folder))
        await session.execute(seen)
    await walk.step("verify_checkpoint", checkpoint_id=second)
    await walk.step("delete_checkpoint", checkpoint_id=second)


async def _walk_nodes(walk: Walk) -> None:
    made = await walk.step("register_node", {"name": "gpu-07"})
    walk.secrets.append(made["join_token"])
    node = made["id"]
    await walk.step("change_node", {"labels": {"rack": "b"}}, node_id=node)
    await walk.step("drain_node", {"reason": "new disk"}, node_id=node)
    await walk.step("undrain_node", node_id=node)
    await walk.step("remove_node", node_id=node)


async def _walk_experiments(walk: Walk) -> None:
    experiment = (await walk.step("create_experiment", SWEEP))["id"]
    for command in ("pause", "resume", "cancel"):
        await walk.step(f"{command}_experiment", experiment_id=experiment)


async def _walk_others(walk: Walk) -> None:
    target = {"kind": "slack", "url": HOOK}
    alert = await walk.step("create_alert", {"name": "a", "on": ["job.failed"], "target": target})
    walk.secrets += [HOOK, "canary"]
    changed = {"target": {"kind": "webhook", "url": HOOK + "2"}}
    made = await walk.step("change_alert", changed, alert_id=alert["id"])
    walk.secrets.append(made["secret"])
    await walk.step("test_alert", alert_id=alert["id"])
    await walk.step("delete_alert", alert_id=alert["id"])
    await walk.step("save_view", {"name": "mine"})
    await walk.step("delete_view", name="mine")
    report = await walk.step("create_report", {"title": "Nets", "text": "Fine."})
    edit = {"version": report["version"], "title": "All nets"}
    await walk.step("change_report", edit, report_id=report["id"])
    await walk.step("delete_report", report_id=report["id"])


async def _walk_secrets(walk: Walk) -> None:
    value = {"value": "the value of a secret"}
    walk.secrets.append(value["value"])
    await walk.step("set_project_secret", value, name="default", secret="HF_TOKEN")
    await walk.step("remove_project_secret", name="default", secret="HF_TOKEN")
    await walk.step("set_own_secret", value, secret="WANDB_API_KEY")
    await walk.step("remove_own_secret", secret="WANDB_API_KEY")


async def _walk_logins(walk: Walk, admin: httpx.AsyncClient) -> None:
    token = await walk.step("create_token", {"name": "ci"})
    walk.secrets.append(token["token"])
    await walk.step("delete_token", token_id=token["id"])
    sessions = []
    for _ in range(2):
        code = (await walk.step("create_login_link"))["code"]
        await walk.step("log_in", {"code": code})
        walk.secrets += [code, *(cookie.value or "" for cookie in admin.cookies.jar)]
        sessions.append((await admin.get(f"{API_PREFIX}/auth/sessions")).json()["items"][-1]["id"])
    await walk.step("end_session", session_id=sessions[0])
    await _walk_logins_of_commands(walk, admin)
    # By the cookie of the other one.
    credential = admin.headers.pop("Authorization")
    method, path = walk.operations["log_out"]
    assert (await admin.request(method, path)).status_code == 204
    admin.headers["Authorization"] = credential
    row, *_ = (await admin.get(f"{API_PREFIX}/audit")).json()["items"]
    expected = ("session.end", "session", sessions[1], sessions[1])
    assert (row["action"], row["how"], row["credential"], row["object"]) == expected
    walk.walked.append("log_out")


async def _walk_logins_of_commands(walk: Walk, admin: httpx.AsyncClient) -> None:
    """Two logins that the browser approves, by its cookie."""
    auth, verifier = f"{API_PREFIX}/auth", "v" * 50
    begun = (await admin.post(f"{auth}/device", json={"client": "gpu-07"})).json()
    credential = admin.headers.pop("Authorization")
    path = f"{auth}/device/{begun['user_code']}"
    assert (await admin.put(path, json={"approve": True})).status_code == 204
    asked = {"challenge": challenge_of(verifier)}
    code = (await admin.post(f"{auth}/browser", json=asked)).json()["code"]
    admin.headers["Authorization"] = credential
    polled = {"device_code": begun["device_code"]}
    given = (await walk.step("poll_device_login", polled))["token"]["token"]
    wanted = {"code": code, "verifier": verifier, "client": "laptop"}
    traded = (await walk.step("trade_browser_code", wanted))["token"]
    walk.secrets += [begun["device_code"], begun["user_code"], code, verifier, given, traded]


async def _walk_people(walk: Walk, admin: httpx.AsyncClient) -> None:
    old, new = "correct horse battery", "staple of a new password"
    walk.secrets += [old, new]
    await walk.step("create_user", {"name": "maria", "password": old})
    await walk.step("change_user", {"password": new}, name="maria")
    await walk.step("log_in_by_password", {"name": "maria", "password": new})
    walk.secrets += [cookie.value or "" for cookie in admin.cookies.jar]
    admin.cookies.clear()
    await walk.step("create_group", {"name": "seers"})
    await walk.step("add_group_member", of="seers", group="seers", user="maria")
    await walk.step("remove_group_member", of="seers", group="seers", user="maria")
    await walk.step("delete_group", group="seers")
    await walk.step("create_project", {"name": "vision"})
    await walk.step("change_project", {"limits": {"priority": 5}}, name="vision")
    await walk.step("set_member", {"role": "viewer"}, name="vision", member="maria")
    await walk.step("remove_member", name="vision", member="maria")
    await walk.step("delete_project", name="vision")
    await walk.step("remove_user", name="maria")


async def _check_no_secrets(walk: Walk, app: FastAPI) -> None:
    walk.secrets.append(bearer_of(app)["Authorization"].removeprefix("Bearer "))
    async with app.state.coordinator.db.session() as session:
        rows = (await session.execute(select(AuditEntry.__table__))).all()
    text = json.dumps([tuple(row) for row in rows], default=str)
    assert "gpu-07" in text
    for secret in walk.secrets:
        assert len(secret) > 5
        assert secret not in text
        assert secret[: max(6, len(secret) - 8)] not in text


@on_sqlite
async def test_refused_credential_is_noted(admin: httpx.AsyncClient) -> None:
    job = (await admin.post(f"{API_PREFIX}/training/jobs", json=SPEC)).json()["id"]
    url = f"{API_PREFIX}/training/jobs/{job}"
    forged = token_of("a" * 43)
    for header in (f"Bearer {forged}", "Bearer nonsense"):
        reply = await admin.delete(url, headers={"Authorization": header})
        assert reply.status_code == 401
    rows = (await admin.get(f"{API_PREFIX}/audit", params={"action": "job.cancel"})).json()["items"]
    assert len(rows) == 2
    for row in rows:
        assert row["outcome"] == "unauthenticated"
        assert (row["user"], row["object"], row["address"]) == (None, job, "192.0.2.7")
        assert forged not in str(row)
    nothing = f"{API_PREFIX}/nothing"
    wrong = {"Authorization": f"Bearer {forged}"}
    assert (await admin.post(nothing, headers=wrong)).status_code == 401
    row, *_ = (await admin.get(f"{API_PREFIX}/audit")).json()["items"]
    assert (row["action"], row["object"]) == ("read", nothing)


@on_sqlite
async def test_secret_in_a_refused_path_is_hidden(admin: httpx.AsyncClient) -> None:
    begun = (await admin.post(f"{API_PREFIX}/auth/device", json={"client": "x"})).json()
    path = f"{API_PREFIX}/auth/device/{begun['user_code']}"
    assert (await admin.put(path, json={"approve": True})).status_code == 403
    wrong = {"Authorization": f"Bearer {token_of('b' * 43)}"}
    assert (await admin.get(path, headers=wrong)).status_code == 401
    rows = (await admin.get(f"{API_PREFIX}/audit")).json()["items"]
    assert [(row["action"], row["object"]) for row in rows] == [
        ("read", "(hidden)"), ("login.approve", "(hidden)")
    ]  # fmt: skip
    assert begun["user_code"] not in str(rows)


@on_sqlite
async def test_wrong_password_is_noted(admin: httpx.AsyncClient) -> None:
    given = {"name": "a mistyped password", "password": "another password"}
    reply = await admin.post(f"{API_PREFIX}/auth/login", json=given)
    assert reply.status_code == 401
    (row,) = (await admin.get(f"{API_PREFIX}/audit")).json()["items"]
    assert (row["action"], row["outcome"]) == ("session.create", "unauthenticated")
    assert "mistyped" not in str(row)


@on_sqlite
async def test_request_without_credential_is_not_noted(admin: httpx.AsyncClient) -> None:
    credential = admin.headers.pop("Authorization")
    assert (await admin.get(f"{API_PREFIX}/auth/me")).status_code == 401
    admin.headers["Authorization"] = credential
    assert (await admin.get(f"{API_PREFIX}/audit")).json()["items"] == []


@on_sqlite
async def test_forbidden_and_invisible_are_noted(admin: httpx.AsyncClient) -> None:
    job = (await admin.post(f"{API_PREFIX}/training/jobs", json=SPEC)).json()["id"]
    login = {"name": "eve", "password": "a long password"}
    await admin.post(f"{API_PREFIX}/users", json=login)
    credential = admin.headers.pop("Authorization")
    assert (await admin.post(f"{API_PREFIX}/auth/login", json=login)).status_code == 204
    path = f"{API_PREFIX}/training/jobs/{job}/pause"
    assert (await admin.put(path)).status_code == 404
    assert (await admin.put(path.replace(job, "nosuchjob"))).status_code == 404
    member = f"{API_PREFIX}/projects/default/members/eve"
    role = {"role": "viewer"}
    made = await admin.put(member, json=role, headers={"Authorization": credential})
    assert made.status_code == 204
    assert (await admin.put(path)).status_code == 403
    assert (await admin.get(f"{API_PREFIX}/audit")).status_code == 403
    admin.headers["Authorization"] = credential
    page = (await admin.get(f"{API_PREFIX}/audit", params={"user": "eve"})).json()
    found = [
        (row["action"], row["object"], row["project"], row["outcome"]) for row in page["items"]
    ]
    paused = ("job.pause", job, "default", "forbidden")
    assert found[:3] == [("read", f"{API_PREFIX}/audit", None, "forbidden"), paused, paused]
    assert [action for action, *_ in found[3:]] == ["session.create"]
    first, second = page["items"][2]["detail"], page["items"][1]["detail"]
    assert first == "it is invisible to the user"
    assert "takes the role" in second


@on_sqlite
async def test_log_is_filtered_and_paginated(admin: httpx.AsyncClient) -> None:
    jobs = [
        (await admin.post(f"{API_PREFIX}/training/jobs", json=SPEC)).json()["id"] for _ in "abc"
    ]
    await admin.put(f"{API_PREFIX}/training/jobs/{jobs[0]}/pause")

    async def found(**query: str) -> list[str]:
        page = (await admin.get(f"{API_PREFIX}/audit", params=query)).json()
        assert "items" in page, page
        return [f"{row['action']} {row['object']}" for row in page["items"]]

    submitted = [f"job.submit {job}" for job in reversed(jobs)]
    paused = f"job.pause {jobs[0]}"
    assert await found() == await found(action="job") == [paused, *submitted]
    assert await found(action="job.submit") == submitted
    assert await found(action="jo") == await found(user="nobody") == await found(project="x") == []
    assert await found(object=jobs[0]) == [paused, submitted[-1]]
    assert await found(until="2020-01-01T00:00:00Z") == []
    assert len(await found(since="2020-01-01T00:00:00Z")) == 4
    first = (await admin.get(f"{API_PREFIX}/audit", params={"limit": 3})).json()
    rest = await found(limit="3", cursor=first["next_cursor"])
    assert rest == submitted[-1:]
