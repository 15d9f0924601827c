"""What a node may ask for and send: of the attempts that it holds, and no others."""

import hashlib
import json

import httpx
import pytest
from support.archives import archive
from support.nodes.agent_client import (
    API,
    DEVICE,
    SPEC,
    batch,
    desired,
    joined,
    report,
    shipping_url,
    socket_url,
)
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from trainhall.cluster.wire.batches import BatchItem, decode_replies, encode_batch
from trainhall.cluster.wire.outputs import Content, encode_contents
from trainhall.cluster.wire.writers import rank_writer


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
            small = encode_contents([(Content(sha256="0" * 64, size=3), b"abc")])
            requests: list[tuple[str, str, str | bytes, int]] = [
                ("POST", f"{base}/received", offer, 200),
                ("PUT", content, data[:-1], 422),
                ("PUT", content + "&offset=5", data[5:], 409),
                ("PUT", content, data, 204),
                ("POST", f"{base}/contents", small[:-1], 422),
                ("POST", f"{base}/contents", small, 200),
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
            assert answers["POST", f"{base}/contents"].json() == {"statuses": [422]}
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
