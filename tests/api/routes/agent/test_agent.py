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
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from trainhall.cluster.gateway.rank_events import RankEvents
from trainhall.cluster.wire.batches import BatchItem, decode_replies, encode_batch
from trainhall.cluster.wire.writers import rank_writer
from trainhall.monitoring.ingest import Ingest
from trainhall.monitoring.lineage import Origin


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
