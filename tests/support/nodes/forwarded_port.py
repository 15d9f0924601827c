"""A port beside a rank, as `trainhall forward` reaches it."""

import asyncio

from trainhall.cli.base.client import Client
from trainhall.cli.tunnels.connection import open_session


async def read_from(url: str, job: str, port: int) -> bytes:
    """What a port beside rank 0 answers."""
    started = asyncio.Event()
    with Client(url) as client:
        path = f"/training/jobs/{job}/forward/{port}"
        async with open_session(client, path, started.set) as session:
            receiving = asyncio.create_task(session.tunnel.run())
            await started.wait()
            stream = await session.tunnel.open()
            data = await stream.read()
            receiving.cancel()
            return data
