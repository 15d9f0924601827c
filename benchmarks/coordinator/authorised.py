"""Reading a job with a member's API token, beside reading it where no credential is asked for.

    python -m benchmarks.coordinator.authorised [--requests 3000]

Both applications run in this process, without sockets, and are asked in turn.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import httpx
from fastapi import FastAPI

from benchmarks.report import Figure, report
from trainhall.api.app import create_app
from trainhall.api.host.credentials import admin_token
from trainhall.api.settings import Settings

GOAL_RATIO = 1.15
V1 = "/api/v1"
SPEC = {"name": "digits", "task": {"name": "digits"}, "project": "default"}


@asynccontextmanager
async def coordinator(
    folder: Path, auth: Literal["none", "token"]
) -> AsyncIterator[tuple[FastAPI, httpx.AsyncClient]]:
    app = create_app(Settings(data_dir=folder, auth=auth))
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client,
    ):
        yield app, client


async def post(client: httpx.AsyncClient, path: str, body: object, **headers: str) -> str:
    """Create something; return its id or token."""
    reply = (await client.post(V1 + path, json=body, headers=headers)).raise_for_status().json()
    return str(reply.get("token") or reply.get("id") or reply["name"])


async def member(folder: Path, client: httpx.AsyncClient) -> tuple[dict[str, str], dict[str, str]]:
    """Return the credentials of the admin and of a member of the default project."""
    admin = {"Authorization": f"Bearer {admin_token(folder)}"}
    await post(client, "/users", {"name": "ci", "kind": "service", "project": "default"}, **admin)
    url = f"{V1}/projects/default/members/ci"
    (await client.put(url, json={"role": "member"}, headers=admin)).raise_for_status()
    token = await post(client, "/auth/tokens", {"name": "ci", "user": "ci"}, **admin)
    return admin, {"Authorization": f"Bearer {token}"}


async def seconds(client: httpx.AsyncClient, path: str, headers: dict[str, str]) -> float:
    began = time.perf_counter()
    (await client.get(path, headers=headers)).raise_for_status()
    return time.perf_counter() - began


async def measure(requests: int) -> tuple[float, float]:
    """Return the median seconds with a credential, and without."""
    known, unknown = [], []
    with tempfile.TemporaryDirectory(prefix="trainhall-bench-") as name:
        async with (
            coordinator(Path(name) / "token", "token") as (_, asks),
            coordinator(Path(name) / "none", "none") as (_, free),
        ):
            admin, headers = await member(Path(name) / "token", asks)
            own = f"{V1}/training/jobs/{await post(asks, '/training/jobs', SPEC, **admin)}"
            other = f"{V1}/training/jobs/{await post(free, '/training/jobs', SPEC)}"
            for _ in range(requests):
                known.append(await seconds(asks, own, headers))
                unknown.append(await seconds(free, other, {}))
    return statistics.median(known), statistics.median(unknown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--requests", type=int, default=3000)
    known, unknown = asyncio.run(measure(parser.parse_args().requests))
    print(f"with a credential {known * 1000:.3f} ms, without {unknown * 1000:.3f} ms a request")
    report(Figure("reading a job as a member, to reading it without a login", known / unknown,
                  at_most=GOAL_RATIO))  # fmt: skip


if __name__ == "__main__":
    main()
