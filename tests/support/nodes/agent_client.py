"""An agent by hand: what it sends to a coordinator, and how it is answered."""

import asyncio
import json
import time
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection

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
