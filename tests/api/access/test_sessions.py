"""Sessions beside jobs: who begins them, what passes, and what ends them."""

import asyncio
import dataclasses
import json

import pytest
from sqlalchemy import delete
from support.access.projects import Projects
from support.access.sockets import Socket
from support.access.tunnels import audited, tunnel_of
from support.access.world import Things

from trainhall.api.login import authentication
from trainhall.cluster.accounts import lookup
from trainhall.cluster.wire.tunnel import Frame, Kind
from trainhall.db.accounts import Member

START = json.dumps({"type": "start", "command": ["ls", "a b"]})


def path_of(things: Things, what: str = "exec") -> str:
    return f"/api/v1/training/jobs/{things.job}/{what}"


async def test_messages_pass_unread_and_are_audited(projects: Projects, running: Things) -> None:
    header = projects.header("member")
    async with Socket(projects.app, path_of(running), header, b"rank=1") as user:
        assert (await user.next())["type"] == "websocket.accept"
        user.send(START)
        async with tunnel_of(projects) as host:
            first = json.loads(await host.received.get())
            assert first == {
                "type": "exec", "job_id": running.job, "attempt": 1, "rank": 1,
                "command": ["ls", "a b"], "terminal": None,
            }  # fmt: skip
            frame = Frame(Kind.DATA, 0, b"\x03").encode()
            user.send(frame)
            assert await host.received.get() == frame
            host.sent.put_nowait('{"type":"exit","code":3}')
            host.sent.put_nowait(None)
            assert (await user.next())["text"] == '{"type":"exit","code":3}'
            assert (await user.next())["code"] == 1000
    (row,) = await audited(projects, "job.exec")
    assert row[1:] == ("done", "rank 1: ls 'a b'")


async def test_foreign_page_begins_no_session(projects: Projects, running: Things) -> None:
    header = {**projects.header("member"), "Origin": "http://evil.example"}
    async with Socket(projects.app, path_of(running), header, b"") as user:
        status, text = await user.outcome()
    assert status == 403
    assert "may not use this coordinator" in text


async def test_viewers_attempt_is_refused_and_noted(projects: Projects, running: Things) -> None:
    async with Socket(projects.app, path_of(running), projects.header("viewer"), b"") as user:
        assert (await user.outcome())[0] == 403
    await projects.coordinator.audit.flush()
    ((_, outcome, _),) = await audited(projects, "job.exec")
    assert outcome == "forbidden"


async def test_session_ends_with_the_role(
    projects: Projects, running: Things, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "RECHECK_SECONDS", 0.05)
    monkeypatch.setattr(lookup, "CACHE_SECONDS", 0.0)
    path = path_of(running, "forward/8888")
    async with Socket(projects.app, path, projects.header("member"), b"") as user:
        assert (await user.next())["type"] == "websocket.accept"
        async with tunnel_of(projects) as host:
            assert json.loads(await host.received.get())["port"] == 8888
            async with projects.coordinator.db.transaction() as session:
                await session.execute(delete(Member).where(Member.id == "m-member"))
            assert "roles have changed" in (await user.next())["text"]
            assert (await user.next())["code"] == 1008


async def test_unused_session_ends(projects: Projects, running: Things) -> None:
    coordinator = projects.coordinator
    coordinator.options = dataclasses.replace(coordinator.options, exec_idle_seconds=0.2)
    path = path_of(running, "forward/8888")
    async with Socket(projects.app, path, projects.header("member"), b"") as user:
        assert (await user.next())["type"] == "websocket.accept"
        async with tunnel_of(projects):
            assert "nothing has passed for 0.2 s" in (await user.next())["text"]
            assert (await user.next())["code"] == 4408


@pytest.mark.parametrize(
    ("start", "why"),
    [
        ("{}", "type: Field required"),
        ("x", "Invalid JSON"),
        ('{"type": "start", "command": ["a\\u0000"]}', "command.0"),
        ('{"type": "start", "terminal": {"rows": 0}}', "terminal.rows"),
    ],
)
async def test_wrong_start_is_explained(
    projects: Projects, running: Things, start: str, why: str
) -> None:
    async with Socket(projects.app, path_of(running), projects.header("member"), b"") as user:
        assert (await user.next())["type"] == "websocket.accept"
        user.send(start)
        assert why in (await user.next())["text"]
        assert (await user.next())["code"] == 4400


@pytest.mark.parametrize(
    ("what", "query", "why"),
    [
        ("exec", b"rank=2", "must be a rank of the job, from 0 to 1"),
        ("exec", b"rank=-1", "must be an integer from 0"),
        ("forward/0", b"", "must be an integer from 1 to 65535"),
        ("forward/x", b"", "must be an integer from 1 to 65535"),
    ],
)
async def test_wrong_parameters_are_explained(
    projects: Projects, running: Things, what: str, query: bytes, why: str
) -> None:
    async with Socket(
        projects.app, path_of(running, what), projects.header("member"), query
    ) as user:
        status, text = await user.outcome()
    assert status == 422
    assert why in text


async def test_switched_off_sessions_are_refused(projects: Projects, running: Things) -> None:
    service = projects.coordinator.tunnels
    service._options = dataclasses.replace(service._options, exec_allowed=False)
    async with Socket(projects.app, path_of(running), projects.header("member"), b"") as user:
        status, text = await user.outcome()
    assert status == 409
    assert "TRAINHALL_ALLOW_EXEC" in text


async def test_stacks_come_from_each_rank(projects: Projects, running: Things) -> None:
    asked = asyncio.create_task(
        projects.ask("member", "POST", f"/training/jobs/{running.job}/stacks")
    )
    async with tunnel_of(projects) as host:
        assert json.loads(await host.received.get())["ranks"] == [0, 1]
        host.sent.put_nowait('{"type":"stacks","rank":0,"pid":7,"text":"File \\"a.py\\""}')
        host.sent.put_nowait('{"type":"exit","code":0}')
        reply = await asked
    assert reply.status_code == 200
    assert reply.json()["items"] == [
        {"rank": 0, "node": "gpu-1", "pid": 7, "text": 'File "a.py"'},
        {
            "rank": 1, "node": "gpu-1", "pid": None,
            "text": "not available: the rank does not run at the moment",
        },
    ]  # fmt: skip
    wrong = await projects.ask("member", "POST", f"/training/jobs/{running.job}/stacks?rank=5")
    assert wrong.status_code == 422
    assert [detail for _, _, detail in await audited(projects, "job.stacks")] == ["all ranks"]


async def test_wrong_profile_request_names_the_field(projects: Projects, running: Things) -> None:
    path = f"/training/jobs/{running.job}/profile"
    for wrong, field in (
        ({"steps": 0}, "steps"), ({"steps": 201}, "steps"), ({"ranks": []}, "ranks"),
        ({"ranks": ["a"]}, "ranks.0"), ({"stacks": 1}, "stacks"), ({"step": 3}, "step"),
    ):  # fmt: skip
        reply = await projects.ask("member", "POST", path, json=wrong)
        assert reply.status_code == 422, reply.text
        assert [each["field"] for each in reply.json()["errors"]] == [field]
