"""Code goes up once, is named by its hash, and is kept while a job needs it."""

import asyncio
import errno
import hashlib
import os
import socket
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from support.archives import archive
from support.cluster.agent_process import until

from trainhall.cluster.coordinator import Coordinator
from trainhall.cluster.jobs import code_store
from trainhall.cluster.wire import code_archive
from trainhall.db.models import Node

URL = "/api/v1/training/code"
SPEC: dict[str, Any] = {"name": "coded", "script": {"path": "train"}}


def stored(tmp_path: Path) -> list[str]:
    return sorted(p.name for p in (tmp_path / "data" / "code").glob("*"))


async def test_code_is_stored_once(client: httpx.AsyncClient, tmp_path: Path) -> None:
    sha256, data = archive(train="print(1)")
    assert (await client.get(f"{URL}/{sha256}")).status_code == 404
    first = await client.put(f"{URL}/{sha256}", content=data)
    again = await client.put(f"{URL}/{sha256}", content=data)
    assert (first.status_code, again.status_code) == (201, 200)
    entry = {"sha256": sha256, "size": len(data)}
    assert first.json() == again.json() == (await client.get(f"{URL}/{sha256}")).json() == entry
    assert stored(tmp_path) == [sha256]


async def test_full_disk_is_reported(
    client: httpx.AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    sha256, data = archive(train="print(1)")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        reply = await client.put(f"{URL}/{sha256}", content=data)
    assert reply.status_code == 507
    assert reply.json()["detail"].endswith(
        "data folder is full; free space there, then send it again"
    )
    assert stored(tmp_path) == []
    assert (await client.put(f"{URL}/{sha256}", content=data)).status_code == 201


async def test_job_may_only_name_uploaded_code(client: httpx.AsyncClient, tmp_path: Path) -> None:
    sha256, data = archive(train="print(1)")
    jobs, dry = "/api/v1/training/jobs", "/api/v1/training/jobs?dry_run=true"
    for code, paths in ((sha256, [jobs]), ("/home/me/lab", [jobs, dry]), ("lab", [jobs, dry])):
        for path in paths:
            reply = await client.post(path, json={**SPEC, "code": code})
            assert reply.status_code == 422, reply.text
            (problem,) = reply.json()["errors"]
            assert (problem["field"], problem["value"]) == ("code", code)
            assert "`trainhall` command" in problem["message"]
    named = {**SPEC, "code": sha256}
    assert (await client.post(dry, json=named)).json()["code_missing"] is True
    await client.put(f"{URL}/{sha256}", content=data)
    assert (await client.post(dry, json=named)).json()["code_missing"] is False
    reply = await client.post(jobs, json=named)
    assert reply.status_code == 201
    assert reply.json()["spec"]["code"] == sha256


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize(
    ("script", "field", "hint"),
    [
        ({"path": "trian.py"}, "script.path", "; did you mean train.py?"),
        ({"path": "tool.py"}, "script.path", "; did you mean lib/tool.py?"),
        ({"path": "train.py", "working_dir": "data"}, "script.working_dir", ""),
    ],
)
async def test_script_must_be_in_its_code(
    client: httpx.AsyncClient, script: dict[str, Any], field: str, hint: str, dry_run: bool
) -> None:
    sha256, data = archive(**{"train.py": "print(1)", "lib/tool.py": ""})
    await client.put(f"{URL}/{sha256}", content=data)
    job = {"name": "coded", "script": script, "code": sha256}
    sweep = {"name": "rates", "kind": "sweep", "job": job, "space": {"resources.workers": [1]},
             "method": "grid", "objective": {"metric": "loss"}}  # fmt: skip
    for path, body, at in (("training/jobs", job, ""), ("experiments", sweep, "job.")):
        reply = await client.post(f"/api/v1/{path}", json=body, params={"dry_run": dry_run})
        (problem,) = reply.json()["errors"]
        assert (reply.status_code, problem["field"]) == (422, at + field)
        assert problem["message"] == f"is not in the uploaded code{hint}"
    whole = {**job, "script": {"path": "lib/tool.py", "working_dir": "lib"}}
    assert (await client.post("/api/v1/training/jobs", json=whole)).status_code == 201


async def test_script_must_exist_on_the_only_node(
    app: FastAPI, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    path = tmp_path / "train.py"
    job = {"name": "local", "script": {"path": str(path)}}
    dry = "/api/v1/training/jobs?dry_run=true"
    assert (await client.post(dry, json=job)).status_code == 200
    coordinator: Coordinator = app.state.coordinator
    await add_node(coordinator, socket.gethostname(), "127.0.0.1")
    reply = await client.post(dry, json=job)
    (problem,) = reply.json()["errors"]
    assert (reply.status_code, problem["field"]) == (422, "script.path")
    assert problem["message"] == f"does not exist on {socket.gethostname()}, the only node"
    path.touch()
    assert (await client.post(dry, json=job)).status_code == 200
    path.unlink()
    # Another host may have it.
    await add_node(coordinator, "gpu-02", "10.0.0.2")
    assert (await client.post(dry, json=job)).status_code == 200


async def test_script_that_cannot_be_looked_up_is_accepted(
    app: FastAPI, client: httpx.AsyncClient
) -> None:
    """The agent may run as a user who has it."""
    await add_node(app.state.coordinator, socket.gethostname(), "127.0.0.1")
    job = {"name": "local", "script": {"path": "/" + "x" * 300}}  # longer than a name may be
    reply = await client.post("/api/v1/training/jobs?dry_run=true", json=job)
    assert reply.status_code == 200


async def add_node(coordinator: Coordinator, name: str, address: str) -> None:
    async with coordinator.db.transaction() as session:
        now = coordinator.clock.now()
        node = Node(id=name[:32], name=name, address=address, created_at=now, state_at=now)
        node.state, node.reason = "ready", "joined"
        session.add(node)
    coordinator.heartbeats.mark_reported(node.id)  # a dry run waits for a node that has not


async def test_code_upload_refuses_unusable_archives(
    client: httpx.AsyncClient, tmp_path: Path
) -> None:
    sha256, data = archive(train="print(1)")
    hostile_hash, hostile = archive(**{"../up": "x"})
    junk = b"no tar at all"
    cases: list[tuple[str, dict[str, Any], int, str]] = [
        (sha256, {"content": data[:-1]}, 422, "the received archive has the SHA-256"),
        (hostile_hash, {"content": hostile}, 422, "../up points outside the folder"),
        (hashlib.sha256(junk).hexdigest(), {"content": junk}, 422, "not a tar archive"),
        (sha256, {"content": data, "headers": {"Content-Type": "text/plain"}}, 415, "octet-stream"),
        (sha256, {"content": b"", "headers": {"Content-Length": str(65 << 20)}}, 413, "64 MiB"),
        ("abc", {"content": data}, 404, "64 lower-case hexadecimal"),
        (sha256.upper(), {"content": data}, 404, "64 lower-case hexadecimal"),
    ]
    for name, options, status, why in cases:
        reply = await client.put(f"{URL}/{name}", **options)
        assert (reply.status_code, why in reply.json()["detail"]) == (status, True), reply.text
        assert stored(tmp_path) == []


async def test_code_that_no_job_needs_is_swept(
    app: FastAPI, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    coordinator: Coordinator = app.state.coordinator
    (used, data), (unused, other), (fresh, third) = (archive(train=text) for text in "123")
    for sha256, content in ((used, data), (unused, other), (fresh, third)):
        assert (await client.put(f"{URL}/{sha256}", content=content)).is_success
    reply = await client.post("/api/v1/training/jobs", json={**SPEC, "code": used})
    assert reply.status_code == 201
    folder = tmp_path / "data" / "code"
    (folder / "half.part").touch()
    (folder / "lost+found").mkdir()
    for name in (used, unused, "half.part", "lost+found"):
        os.utime(folder / name, (1, 1))
    assert await coordinator.code.sweep(3600) == [unused]
    assert stored(tmp_path) == sorted([used, fresh, "lost+found"])
    assert await coordinator.code.sweep(3600) == []


async def test_only_agents_fetch_archives(client: httpx.AsyncClient, tmp_path: Path) -> None:
    sha256, data = archive(train="print(1)")
    await client.put(f"{URL}/{sha256}", content=data)
    assert (await client.get(f"/api/v1/agent/code/{sha256}")).status_code == 401


async def test_code_upload_inspects_two_archives_at_once(
    client: httpx.AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each unpacks up to 256 MiB to look at it."""
    all_are_here = threading.Event()
    looking: set[Path] = set()
    most = 0

    def inspect(path: Path) -> object:
        nonlocal most
        looking.add(path)
        most = max(most, len(looking))
        assert all_are_here.wait(30)
        looking.remove(path)
        return code_archive.inspect(path)

    monkeypatch.setattr(code_store, "inspect", inspect)
    archives = [archive(train=f"print({number})") for number in range(4)]
    uploads = [
        asyncio.create_task(client.put(f"{URL}/{sha256}", content=data))
        for sha256, data in archives
    ]
    folder = tmp_path / "data" / "code"
    await until("all to be received", lambda: sum(
        path.stat().st_size == len(archives[0][1]) for path in folder.glob("*.part")
    ) == 4)  # fmt: skip
    await until("two to be looked at", lambda: len(looking) >= 2)
    all_are_here.set()
    assert [(await upload).status_code for upload in uploads] == [201] * 4
    assert most == 2


async def test_unused_code_is_bounded(
    app: FastAPI, client: httpx.AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator: Coordinator = app.state.coordinator
    one, two, three = (archive(train=f"print({number})") for number in range(3))
    # There is room for two.
    monkeypatch.setattr(coordinator.code, "_unused_limit", 2 * len(one[1]))
    for sha256, data in (one, two):
        assert (await client.put(f"{URL}/{sha256}", content=data)).status_code == 201
    refused = await client.put(f"{URL}/{three[0]}", content=three[1])
    assert refused.status_code == 507
    assert "that no job uses; submit the jobs" in refused.json()["detail"]
    # What is there may come again, and what a job names does not count.
    assert (await client.put(f"{URL}/{one[0]}", content=one[1])).status_code == 200
    spec = {**SPEC, "code": one[0]}
    assert (await client.post("/api/v1/training/jobs", json=spec)).status_code == 201
    assert (await client.put(f"{URL}/{three[0]}", content=three[1])).status_code == 201
    assert stored(tmp_path) == sorted([one[0], two[0], three[0]])
