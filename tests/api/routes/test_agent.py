"""An agent's life as the API serves it: join, connect, be assigned, ship, upload, leave."""

import asyncio
import contextlib
import hashlib
import itertools
import json
import time
from typing import Any

import httpx
import pytest
from sqlalchemy.exc import OperationalError
from support.archives import archive
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from trainhall.cluster.gateway.rank_events import RankEvents
from trainhall.cluster.wire.batches import BatchItem, decode_replies, encode_batch
from trainhall.cluster.wire.writers import rank_writer
from trainhall.monitoring.ingest import Ingest
from trainhall.monitoring.lineage import Origin
from trainhall.training.link.frames import MetricTable, encode_frame, encode_tables

API = "/api/v1"
SPEC = {
    "name": "digits",
    "task": {"name": "digits"},
    "training": {"steps": 20},
    "resources": {"device": "cpu"},
}
DEVICE = {"index": 0, "kind": "cpu", "name": "slot", "memory_total": 2**30}


def report(agent: str = "a1", **changes: Any) -> str:
    return json.dumps(
        {
            "type": "report", "agent_version": "0.1.0", "protocol_version": 1, "agent_id": agent,
            "time": time.time(), "address": "127.0.0.1", "devices": [DEVICE], **changes,
        }
    )  # fmt: skip


async def desired(agent: ClientConnection, attempts: int) -> dict[str, Any]:
    """The first message with so many assignments."""
    async with asyncio.timeout(20):
        while True:
            message: dict[str, Any] = json.loads(await agent.recv())
            if len(message["assignments"]) == attempts:
                return message


def socket_url(url: str) -> str:
    return f"ws{url.removeprefix('http')}{API}/agent/connect"


def shipping_url(url: str) -> str:
    return f"ws{url.removeprefix('http')}{API}/agent/ship"


async def joined(client: httpx.AsyncClient, name: str = "here") -> tuple[str, dict[str, str]]:
    node = (await client.post(f"{API}/cluster/nodes", json={"name": name})).json()
    request = {
        "join_token": node["join_token"], "name": name, "address": "127.0.0.1",
        "agent_version": "0.1.0", "devices": [DEVICE],
    }  # fmt: skip
    reply = (await client.post(f"{API}/agent/join", json=request)).raise_for_status().json()
    return reply["node_id"], {"Authorization": f"Bearer {reply['credential']}"}


def batch(sequence: int, steps: range) -> bytes:
    now = time.time()
    table = MetricTable(
        None, list(steps), [now] * len(steps), {"loss": [1.0 / step for step in steps]}
    )
    return encode_frame(sequence, encode_tables([table]))


async def test_job_from_its_submission_to_its_curves(url: str) -> None:
    async with httpx.AsyncClient(base_url=url) as client:
        node_id, credential = await joined(client)
        async with connect(socket_url(url), additional_headers=credential) as agent:
            await agent.send(report())
            await desired(agent, 0)
            job = (await client.post(f"{API}/training/jobs", json=SPEC)).json()["id"]
            launch = (await desired(agent, 1))["assignments"][0]["launch"]
            assert launch["job_id"] == job
            attempt = launch["attempt"]
            await ship(client, credential, job, attempt)
            await upload(client, credential, job, attempt)
            nodes = (await client.get(f"{API}/cluster/nodes")).json()["items"]
            assert [(node["id"], node["state"]) for node in nodes] == [(node_id, "ready")]
            assert nodes[0]["devices"][0]["job_id"] == job
            devices = (await client.get(f"{API}/cluster/gpu-status")).json()["items"]
            assert devices == nodes[0]["devices"]
            attempts = (await client.get(f"{API}/training/jobs/{job}/attempts")).json()["items"]
            assert attempts[0]["allocation"][0]["node_id"] == node_id
            shown = (await client.get("/metrics")).text
            assert 'trainhall_jobs{state="starting"} 1.0' in shown
            assert f'route="{API}/training/jobs"' in shown
        await client.delete(f"{API}/cluster/nodes/{node_id}")


async def ship(
    client: httpx.AsyncClient, credential: dict[str, str], job: str, attempt: int
) -> None:
    base = f"{API}/agent/jobs/{job}/attempts/{attempt}"
    writer = rank_writer(job, attempt, 1, 0)
    for _ in range(2):
        for sequence, steps in ((1, range(1, 6)), (2, range(6, 11))):
            reply = await client.post(
                f"{base}/metrics?writer={writer}", content=batch(sequence, steps),
                headers=credential,
            )  # fmt: skip
            assert reply.status_code == 200, reply.text
    assert reply.json() == {"sequence": 2}
    series = (await client.get(f"{API}/metrics/jobs/{job}", params={"names": "loss"})).json()
    points = series["series"][0]["points"]
    assert [point["step"] for point in points] == list(range(1, 11))
    assert points[1]["value"] == points[1]["min"] == points[1]["max"] == 0.5
    assert points[1]["time"].endswith("Z")
    fewer = (await client.get(f"{API}/metrics/jobs/{job}", params={"max_points": 2})).json()
    assert len(fewer["series"][0]["points"]) == 2
    text = b"hello\nworld\n\xff\n"
    for _ in range(2):
        reply = await client.post(
            f"{base}/logs?rank=0&stream=stdout&offset=0", content=text, headers=credential
        )
        assert reply.json() == {"next_offset": len(text)}
    logs = f"{API}/training/jobs/{job}/logs"
    page = (await client.get(logs)).json()
    lines = [line["text"] for line in page["items"]]
    assert lines == ["hello", "world", "\N{REPLACEMENT CHARACTER}"]
    assert (page["previous_cursor"], page["more"]) == (None, False)
    found = (await client.get(logs, params={"search": "WOR"})).json()["items"]
    assert [line["text"] for line in found] == ["world"]
    about = (await client.get(logs, params={"at": "1.0.stdout.7", "limit": 2})).json()
    assert [line["text"] for line in about["items"]] == ["hello", "world"]
    tail = (await client.get(logs, params={"tail": 1})).json()
    ahead = (await client.get(logs, params={"before": tail["previous_cursor"]})).json()
    assert [line["text"] for line in ahead["items"]] == ["hello", "world"]
    assert (await client.get(logs, params={"at": "1.0.stdout.99"})).status_code == 404
    event = {"sequence": 1, "time": time.time(), "rank": 0, "kind": "note",
             "data": {"message": "all well"}}  # fmt: skip
    reply = await client.post(
        f"{base}/events?writer={writer}", content=json.dumps(event), headers=credential
    )
    assert reply.json() == {"sequence": 1}
    events = (await client.get(f"{API}/training/jobs/{job}/events")).json()["items"]
    assert "all well" in [event["reason"] for event in events]
    data: dict[str, Any] = {
        "python": "3.12.3", "os": "Linux", "packages": {"torch": "2.12.0"}, "driver": "580.65",
    }  # fmt: skip
    reports = [{"sequence": 2, "kind": "packages", "data": data},
               {"sequence": 3, "kind": "packages", "data": data | {"os": ""}},
               {"sequence": 4, "data": {"message": "still well"}}]  # fmt: skip
    sent = "\n".join(json.dumps(event | report) for report in reports)
    reply = await client.post(f"{base}/events?writer={writer}", content=sent, headers=credential)
    assert reply.json() == {"sequence": 4}, "an agent drops all events of a request that is refused"
    events = (await client.get(f"{API}/training/jobs/{job}/events")).json()["items"]
    assert "still well" in [event["reason"] for event in events]
    found = (await client.get(f"{API}/training/jobs/{job}/packages")).json()
    assert found == {"attempt": 1, "host": "here", "cuda": None, **data}


async def test_shipped_items_carry_node_and_generation(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which says what of it is void once others have gone on without these ranks."""
    seen: list[Origin] = []
    metrics, logs, accept = Ingest.metrics, Ingest.logs, RankEvents.accept
    for owner, name, real in (
        (Ingest, "metrics", metrics), (Ingest, "logs", logs), (RankEvents, "accept", accept)
    ):  # fmt: skip

        def noting(self: Any, *given: Any, real: Any = real) -> Any:
            seen.append(given[-1])
            return real(self, *given)

        monkeypatch.setattr(owner, name, noting)
    async with httpx.AsyncClient(base_url=url) as client:
        node_id, credential = await joined(client)
        async with connect(socket_url(url), additional_headers=credential) as agent:
            await agent.send(report())
            job = (await client.post(f"{API}/training/jobs", json=SPEC)).json()["id"]
            attempt = (await desired(agent, 1))["assignments"][0]["launch"]["attempt"]
            base = f"{API}/agent/jobs/{job}/attempts/{attempt}"
            note = {"sequence": 1, "time": 1.0, "rank": 0, "kind": "note", "data": {}}
            writer = rank_writer(job, attempt, 1, 0)
            for path, body in (
                (f"metrics?writer={writer}&generation=3", batch(1, range(1, 2))),
                (f"events?writer={writer}&generation=3", json.dumps(note).encode()),
                ("logs?rank=0&stream=stdout&offset=0&generation=3", b"x\n"),
            ):
                answer = await client.post(f"{base}/{path}", content=body, headers=credential)
                assert answer.status_code == 200, answer.text
            pieces = [
                (BatchItem(job_id=job, attempt=attempt, kind=kind, size=len(data), writer=writer,
                       generation=3), data)
                for kind, data in (("metrics", batch(1, range(1, 2))), ("stderr", b"y\n"))
            ]  # fmt: skip
            async with connect(shipping_url(url), additional_headers=credential) as shipping:
                await shipping.send(encode_batch(pieces))
                answers = decode_replies(await shipping.recv())
                assert [answer.refusal for answer in answers] == [None, None]
        await client.delete(f"{API}/cluster/nodes/{node_id}")
    assert seen == [Origin(3, node_id)] * 5


async def test_small_pieces_share_a_message(url: str) -> None:
    async with httpx.AsyncClient(base_url=url) as client:
        node_id, credential = await joined(client)
        async with connect(socket_url(url), additional_headers=credential) as agent:
            await agent.send(report())
            job = (await client.post(f"{API}/training/jobs", json=SPEC)).json()["id"]
            attempt = (await desired(agent, 1))["assignments"][0]["launch"]["attempt"]
            frames = batch(1, range(1, 6)) + batch(2, range(6, 11))
            sent: list[tuple[dict[str, Any], bytes]] = [
                ({"kind": "metrics", "writer": rank_writer(job, attempt, 1, 0)}, frames),
                ({"kind": "stdout", "rank": 0, "offset": 0}, b"hello\n"),
                ({"kind": "metrics", "writer": "\0"}, frames),
                ({"kind": "metrics", "writer": rank_writer(job, attempt, 1, 0)}, b"garbage"),
                ({"kind": "stdin", "rank": 0}, b"x"),
                ({"kind": "stderr", "rank": -1}, b"x"),
                ({"kind": "stderr", "offset": 2**63}, b"x"),
                ({"kind": "stderr", "attempt": 0}, b"x"),
                ({"kind": "stderr", "job_id": "nosuchjob"}, b"x"),
                ({"kind": "stdout", "offset": 7}, b"behind a gap"),
                ({"kind": "stderr", "rank": 0, "offset": 0}, b"the last\n"),
                ({"kind": "stderr", "rank": 2, "offset": 0}, b"of a rank elsewhere\n"),
                ({"kind": "metrics", "writer": rank_writer(job, attempt, 2, 0)}, frames),
            ]
            whole = {"job_id": job, "attempt": attempt}
            message = encode_batch(
                [(BatchItem(**whole | given, size=len(data)), data) for given, data in sent]
            )
            async with connect(shipping_url(url), additional_headers=credential) as shipping:
                for _ in range(2):
                    await shipping.send(message)
                    answers = decode_replies(await shipping.recv())
            assert [answer.status for answer in answers] == [
                200, 200, 422, 422, 422, 422, 422, 404, 404, 200, 200, 404, 404
            ]  # fmt: skip
            taken = [answer.position for answer in answers if answer.refusal is None]
            assert taken == [2, len(b"hello\n"), len(b"hello\n"), len(b"the last\n")]
            series = (
                await client.get(f"{API}/metrics/jobs/{job}", params={"names": "loss"})
            ).json()
            steps = [point["step"] for point in series["series"][0]["points"]]
            assert steps == list(range(1, 11))
            page = (await client.get(f"{API}/training/jobs/{job}/logs")).json()
            lines = [(line["rank"], line["text"]) for line in page["items"]]
            assert sorted(lines) == [(0, "hello"), (0, "the last")]
        await client.delete(f"{API}/cluster/nodes/{node_id}")


async def test_agent_socket_refuses_malformed_and_removed(url: str) -> None:
    async with httpx.AsyncClient(base_url=url) as client:
        node_id, credential = await joined(client)
        for message in (b"nonsense", "text", encode_batch([]) + b"more"):
            async with connect(shipping_url(url), additional_headers=credential) as shipping:
                await shipping.send(message)
                with pytest.raises(ConnectionClosed):
                    await shipping.recv()
        async with connect(shipping_url(url), additional_headers=credential) as shipping:
            reply = await client.delete(f"{API}/cluster/nodes/{node_id}")
            assert reply.status_code in (202, 204)
            await shipping.send(encode_batch([]))
            with pytest.raises(ConnectionClosed) as caught:
                await shipping.recv()
            assert caught.value.rcvd is not None
            assert caught.value.rcvd.code == 4403
        with pytest.raises(InvalidStatus) as refused:
            await connect(shipping_url(url), additional_headers=credential)
        assert refused.value.response.status_code == 410


async def test_pieces_wait_for_a_database_that_is_away(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> int:
        raise OperationalError("insert", {}, OSError("the server is gone"))

    monkeypatch.setattr(Ingest, "logs", away)
    piece = BatchItem(job_id="abc", attempt=1, kind="stdout", size=1)
    async with httpx.AsyncClient(base_url=url) as client:
        _, credential = await joined(client)
    async with connect(shipping_url(url), additional_headers=credential) as shipping:
        for _ in range(2):
            await shipping.send(encode_batch([(piece, b"x")] * 2))
            answers = decode_replies(await shipping.recv())
            assert [answer.status for answer in answers] == [503, 503]


async def upload(
    client: httpx.AsyncClient, credential: dict[str, str], job: str, attempt: int
) -> None:
    base = f"{API}/agent/jobs/{job}/checkpoints/step-00000010-a{attempt}-g1"
    content = bytes(range(256)) * 20_000
    digest = hashlib.sha256(content).hexdigest()
    wrong = await client.put(
        f"{base}/files/rank-0.safetensors?sha256={'0' * 64}", content=content, headers=credential
    )
    assert wrong.status_code == 422
    no_digits = await client.put(
        f"{base}/files/rank-0.safetensors?sha256={'z' * 64}", content=content, headers=credential
    )
    assert "must be 64 lower-case hexadecimal digits" in no_digits.json()["detail"]
    right = await client.put(
        f"{base}/files/rank-0.safetensors?sha256={digest}", content=content, headers=credential
    )
    assert right.status_code == 204, right.text
    halves = await client.post(f"{base}/commit", headers=credential)
    assert halves.status_code == 422, "there is no manifest yet"
    unseen = await client.get(f"{base}/files/rank-0.safetensors", headers=credential)
    assert unseen.status_code == 404, "it is not committed yet"


async def test_outputs_are_those_of_the_attempts_node(url: str) -> None:
    data = bytes(range(256)) * 5000
    sha256 = hashlib.sha256(data).hexdigest()
    async with httpx.AsyncClient(base_url=url) as client:
        _, holder = await joined(client)
        _, stranger = await joined(client, "stranger")
        async with connect(socket_url(url), additional_headers=holder) as agent:
            await agent.send(report())
            spec = {"name": "writes", "script": {"path": "/srv/train.py"}}
            job = (await client.post(f"{API}/training/jobs", json=spec)).json()["id"]
            await desired(agent, 1)
            base = f"jobs/{job}/attempts/1/outputs"
            file = {"path": "a b/ä.pt", "size": len(data), "sha256": sha256,
                    "modified_at": "2026-01-02T03:04:05.000006Z"}  # fmt: skip
            offer = json.dumps({"contents": [{"sha256": sha256, "size": len(data)}]})
            content = f"{base}/contents/{sha256}?size={len(data)}"
            requests: list[tuple[str, str, str | bytes, int]] = [
                ("POST", f"{base}/received", offer, 200),
                ("PUT", content, data[:-1], 422),
                ("PUT", content + "&offset=5", data[5:], 409),
                ("PUT", content, data, 204),
                ("POST", base, json.dumps({"rank": 1, "files": [file]}), 404),
                ("POST", base, json.dumps({"rank": 0, "files": [{**file, "path": "../a"}]}), 422),
                ("POST", base, json.dumps({"rank": 0, "files": [file]}), 200),
                ("GET", f"{base}?rank=0", b"", 200),
                ("GET", f"jobs/{job}/outputs/contents/{sha256}", b"", 200),
            ]
            answers = {}
            for method, path, body, status in requests:
                address, kind = f"{API}/agent/{path}", {"Content-Type": "application/json"}
                for headers, expected in ((stranger, 404), (holder, status)):
                    answer = await client.request(
                        method, address, content=body, headers=headers | kind
                    )
                    assert answer.status_code == expected, (path, answer.text)
                answers[method, path] = answer
            assert answers["POST", f"{base}/received"].json() == {"offsets": [0]}
            (stored,) = answers["GET", f"{base}?rank=0"].json()["files"]
            assert stored == {**file, "rank": 0}
            assert answers["GET", f"jobs/{job}/outputs/contents/{sha256}"].content == data


async def test_node_speaks_only_for_attempts_it_holds(url: str) -> None:
    """Any host with a join token could forge metrics, and plant checkpoints."""
    sha256, code = archive(train="print(1)")
    async with httpx.AsyncClient(base_url=url) as client:
        (await client.put(f"{API}/training/code/{sha256}", content=code)).raise_for_status()
        _, holder = await joined(client)
        node_id, stranger = await joined(client, "stranger")
        async with connect(socket_url(url), additional_headers=holder) as agent:
            await agent.send(report())
            spec = {"name": "coded", "script": {"path": "train"}, "code": sha256}
            job = (await client.post(f"{API}/training/jobs", json=spec)).json()["id"]
            attempt = (await desired(agent, 1))["assignments"][0]["launch"]["attempt"]
            checkpoint = f"jobs/{job}/checkpoints/step-00000010-a{attempt}-g1"
            ranks = f"jobs/{job}/attempts/{attempt}"
            writer = rank_writer(job, attempt, 1, 0)
            logs = f"{ranks}/logs?rank=0&stream=stdout&offset=0"
            event = json.dumps({"sequence": 1, "time": 1.0, "kind": "started", "data": {}})
            requests: list[tuple[str, str, bytes]] = [
                ("POST", f"{ranks}/metrics?writer={writer}", batch(1, range(1, 3))),
                ("POST", f"{ranks}/events?writer={writer}", event.encode()),
                ("POST", logs, b"forged"),
                ("PUT", f"{checkpoint}/files/state.json", b"{}"),
                ("POST", f"{checkpoint}/commit", b""),
                ("POST", f"{checkpoint}/verify", b""),
                ("GET", f"{checkpoint}/files/state.json", b""),
                ("GET", f"code/{sha256}", b""),
                ("PUT", f"{ranks}/environment", b"{}"),
            ]
            for method, path, content in requests:
                address = f"{API}/agent/{path}"
                refused = await client.request(method, address, content=content, headers=stranger)
                assert refused.status_code == 404, path
                assert "on this node" in refused.json()["detail"], path
            piece = BatchItem(job_id=job, attempt=attempt, kind="stdout", size=1)
            for credential, status in ((stranger, 404), (holder, 200)):
                async with connect(shipping_url(url), additional_headers=credential) as shipping:
                    await shipping.send(encode_batch([(piece, b"x")]))
                    (reply,) = decode_replies(await shipping.recv())
                    assert reply.status == status
            # The holder is refused for other reasons alone.
            for method, path, content in requests:
                address = f"{API}/agent/{path}"
                answer = await client.request(method, address, content=content, headers=holder)
                assert "on this node" not in answer.text, path
        rows = (await client.get(f"{API}/audit", params={"limit": 50})).json()["items"]
    refused_rows = [row for row in rows if row["outcome"] != "done"]
    assert {(row["how"], row["credential"], row["outcome"]) for row in refused_rows} == {
        ("node", node_id, "forbidden")
    }
    assert [row["action"] for row in reversed(refused_rows)] == [
        "metrics.ship", "events.ship", "logs.ship", "checkpoint.upload", "checkpoint.commit",
        "read", "read", "read", "environment.lock", "metrics.ship",
    ]  # fmt: skip
    assert refused_rows[-1]["object"] == job


async def test_node_gets_tokens_for_its_attempts_alone(url: str) -> None:
    async with httpx.AsyncClient(base_url=url) as client:
        _, holder = await joined(client)
        _, stranger = await joined(client, "stranger")
        async with connect(socket_url(url), additional_headers=holder) as agent:
            await agent.send(report())
            spec = {**SPEC, "api_token": "member"}
            job = (await client.post(f"{API}/training/jobs", json=spec)).json()["id"]
            assigned = (await desired(agent, 1))["assignments"][0]
            path = f"{API}/agent/jobs/{job}/attempts/{assigned['launch']['attempt']}/token"
            assert (await client.post(path, headers=stranger)).status_code == 404
            assert (await client.post(path)).status_code == 401
            token = (await client.post(path, headers=holder)).raise_for_status().json()["token"]
            bearer = {"Authorization": f"Bearer {token}"}
            me = (await client.get(f"{API}/auth/me", headers=bearer)).json()
            assert (me["how"], me["admin"]) == ("token", False)
            assert me["projects"] == [{"name": "default", "role": "member"}]
            assert token not in (await client.get(f"{API}/training/jobs/{job}")).text


async def test_secrets_and_data_are_for_the_attempts_node(url: str) -> None:
    async with httpx.AsyncClient(base_url=url) as client:
        _, holder = await joined(client)
        _, stranger = await joined(client, "stranger")
        async with connect(socket_url(url), additional_headers=holder) as agent:
            await agent.send(report())
            secret = f"{API}/projects/default/secrets/HF_TOKEN"
            (await client.put(secret, json={"value": "hf_canary"})).raise_for_status()
            data = [{"name": "a", "path": "/a"}]
            spec = {**SPEC, "secrets": ["HF_TOKEN"], "data": data}
            job = (await client.post(f"{API}/training/jobs", json=spec)).json()["id"]
            message = await desired(agent, 1)
            assert "hf_canary" not in str(message)
            number = message["assignments"][0]["launch"]["attempt"]
            path = f"{API}/agent/jobs/{job}/attempts/{number}/secrets"
            assert (await client.post(path, headers=stranger)).status_code == 404
            assert (await client.post(path)).status_code == 401
            found = (await client.post(path, headers=holder)).raise_for_status().json()
            assert found == {"values": {"HF_TOKEN": "hf_canary"}}
            path = f"{API}/agent/jobs/{job}/attempts/{number}/data"
            found = {"name": "a", "kind": "listing", "sha256": "0" * 64, "bytes": 1, "files": 1}
            for headers, name, status in (
                (stranger, "a", 404),
                (holder, "b", 409),
                (holder, "a", 204),
            ):
                answer = await client.put(
                    path, json={"items": [{**found, "name": name}]}, headers=headers
                )
                assert answer.status_code == status, answer.text
            assert (await client.put(path, json={}, headers=holder)).status_code == 422
            listed = (await client.get(f"{API}/training/jobs/{job}/data")).json()["items"]
            assert (listed[0]["sha256"], listed[0]["path"]) == ("0" * 64, "/a")
            path = f"{API}/agent/jobs/{job}/attempts/{number}/secrets"
            (await client.delete(secret)).raise_for_status()
            refused = await client.post(path, headers=holder)
            assert refused.status_code == 409
            assert "trainhall secrets set HF_TOKEN" in refused.json()["detail"]


async def test_refused_credentials_of_agents_are_audited(url: str) -> None:
    async with httpx.AsyncClient(base_url=url) as client:
        node_id, credential = await joined(client)
        wrong = {"Authorization": "Bearer canary"}
        for address in (socket_url(url), shipping_url(url)):
            for headers in ({}, wrong):
                with pytest.raises(InvalidStatus):
                    await connect(address, additional_headers=headers)
        path = f"{API}/agent/jobs/job1/attempts/1/metrics?writer=x"
        assert (await client.post(path, headers=wrong)).status_code == 401
        assert (await client.post(path)).status_code == 401
        join = {
            "join_token": "thj_canary", "name": "n", "address": "a", "agent_version": "1",
            "devices": [DEVICE],
        }  # fmt: skip
        assert (await client.post(f"{API}/agent/join", json=join)).status_code == 401
        await client.delete(f"{API}/cluster/nodes/{node_id}")
        assert (await client.post(path, headers=credential)).status_code == 410
        rows = (await client.get(f"{API}/audit")).json()["items"]
    assert "canary" not in str(rows)
    refused = [row for row in rows if row["outcome"] != "done"]
    assert {row["outcome"] for row in refused} == {"unauthenticated"}
    assert [row["action"] for row in reversed(refused)] == [
        "node.connect", "metrics.ship", "metrics.ship", "node.join", "metrics.ship"
    ]  # fmt: skip


async def test_stalled_viewer_is_dropped_without_blocking_others(url: str) -> None:
    async with httpx.AsyncClient(base_url=url) as client:
        _, credential = await joined(client)
        async with connect(socket_url(url), additional_headers=credential) as agent:
            await agent.send(report())
            job = (await client.post(f"{API}/training/jobs", json=SPEC)).json()["id"]
            attempt = (await desired(agent, 1))["assignments"][0]["launch"]["attempt"]
            stream = f"ws{url.removeprefix('http')}{API}/metrics/stream/{job}"
            # It takes one message from its connection and reads no more until it is asked to.
            slow = await connect(stream, max_queue=1, max_size=None)
            async with connect(stream, max_size=None) as quick:
                line = b"x" * 1023 + b"\n"
                logs = f"{API}/agent/jobs/{job}/attempts/{attempt}/logs?rank=0&stream=stdout"
                for number in range(24):
                    # It reads each part before the next comes: else it may be slow, too.
                    reading = asyncio.create_task(until(quick, f"end of part {number} "))
                    last = f"end of part {number} ".ljust(1023).encode() + b"\n"
                    reply = await client.post(
                        f"{logs}&offset={number * 1024 * 1024}", content=line * 1023 + last,
                        headers=credential,
                    )  # fmt: skip
                    assert reply.status_code == 200, reply.text
                    await reading
            async with asyncio.timeout(20):
                with pytest.raises(ConnectionClosed) as caught:
                    await _read_on(slow)
            assert caught.value.rcvd is not None
            assert caught.value.rcvd.code == 4408
            assert "again" in caught.value.rcvd.reason


async def until(viewer: ClientConnection, text: str) -> None:
    async with asyncio.timeout(60):
        while text not in await viewer.recv(decode=True):
            pass


async def test_agent_socket_needs_a_credential(url: str) -> None:
    for address, headers in itertools.product(
        (socket_url(url), shipping_url(url)), ({}, {"Authorization": "Bearer nonsense"})
    ):
        with pytest.raises(InvalidStatus) as caught:
            await connect(address, additional_headers=headers)
        assert caught.value.response.status_code == 401
        assert caught.value.response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("message", ["not json", "{}", b"\0", "[" * 100_000])
async def test_malformed_report_ends_the_connection(url: str, message: str | bytes) -> None:
    async with httpx.AsyncClient(base_url=url) as client:
        _, credential = await joined(client)
    async with connect(socket_url(url), additional_headers=credential) as agent:
        await agent.send(message)
        async with asyncio.timeout(10):
            with pytest.raises(ConnectionClosed):
                await agent.recv()


async def test_absurd_readings_harm_no_node(url: str) -> None:
    """Each is refused, or left out; the next report of the node counts."""
    async with httpx.AsyncClient(base_url=url, timeout=20) as client:
        node_id, credential = await joined(client)
        large = 10**30
        readings: list[dict[str, Any]] = [
            {"host": {name: large}} for name in ("memory_used", "disk_total", "backlog", "cores")
        ]
        readings += [
            {"host": {"cpu": float("nan")}}, {"host": {"backlog": -large}},
            {"device_use": [{"index": 0, "memory_used": large, "power": float("inf")}]},
            {"devices": [DEVICE, DEVICE]}, {"devices": [{**DEVICE, "memory_total": large}]},
            {"time": 1e300}, {"address": "\0" * 5000}, {"agent_version": "9" * 5000},
        ]  # fmt: skip
        for reading in readings:
            async with connect(socket_url(url), additional_headers=credential) as agent:
                await agent.send(report(**reading))
                with contextlib.suppress(ConnectionClosed):
                    await desired(agent, 0)
            for path in ("/cluster/nodes", f"/cluster/nodes/{node_id}", "/cluster/gpu-status"):
                answer = await client.get(f"{API}{path}")
                assert answer.status_code == 200, (reading, path)
            assert (await client.get("/metrics")).status_code == 200, reading
        async with connect(socket_url(url), additional_headers=credential) as agent:
            await agent.send(report())
            await desired(agent, 0)


async def test_removed_node_is_disconnected(url: str) -> None:
    async with httpx.AsyncClient(base_url=url) as client:
        node_id, credential = await joined(client)
        async with connect(socket_url(url), additional_headers=credential) as agent:
            await agent.send(report())
            await desired(agent, 0)
            reply = await client.delete(f"{API}/cluster/nodes/{node_id}")
            assert reply.status_code in (202, 204)
            async with asyncio.timeout(10):
                with pytest.raises(ConnectionClosed) as caught:
                    await _read_on(agent)
            assert caught.value.rcvd is not None
            assert caught.value.rcvd.code == 4403
        with pytest.raises(InvalidStatus) as refused:
            await connect(socket_url(url), additional_headers=credential)
        # It is gone for good, which a credential that nobody knows does not say.
        assert refused.value.response.status_code == 410


async def _read_on(agent: ClientConnection) -> None:
    while True:
        await agent.recv()
