"""Shared by the benchmarks of whole jobs: a running cluster, and waiting for it."""

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx

from trainhall.api.host.credentials import admin_token

TIMEOUT_SECONDS = 180.0
FINAL = {"completed", "failed", "cancelled"}

T = TypeVar("T")


def wait_for(what: str, check: Callable[[], T | None], every: float = 0.05) -> T:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        found = check()
        if found is not None:
            return found
        time.sleep(every)
    raise SystemExit(f"waited {TIMEOUT_SECONDS:g} s in vain for {what}")


@contextlib.contextmanager
def program(log: Path, arguments: list[str]) -> Iterator["subprocess.Popen[bytes]"]:
    """One of Trainhall's processes, ended with the block."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "trainhall.cli.main", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    except BaseException:
        print(log.read_text(errors="replace"), file=sys.stderr)
        raise
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def cluster(folder: Path, slots: int = 2) -> Iterator[httpx.Client]:
    """A coordinator and an agent that has a warm parent; a client of the former's API.

    Their data and their output (`server.log`, `agent.log`) are in the folder.
    """
    server_log = folder / "server.log"
    server_arguments = ["server", "--port", "0", "--data-dir", str(folder / "server")]
    with program(server_log, server_arguments):

        def url() -> str | None:
            found = re.search(r"http://127\.0\.0\.1:\d+", server_log.read_text(errors="replace"))
            return found.group(0) if found else None

        address = wait_for("the coordinator's URL", url)
        with httpx.Client(base_url=f"{address}/api/v1", timeout=30, trust_env=False) as client:

            def node() -> dict[str, Any] | None:
                token = admin_token(folder / "server")
                client.headers["Authorization"] = f"Bearer {token}"
                with contextlib.suppress(httpx.TransportError):
                    reply = client.post("/cluster/nodes", json={})
                    return reply.json() if reply.is_success else None
                return None

            token = wait_for("the coordinator", node)["join_token"]
            agent_arguments = [
                "agent", "--coordinator", address, "--token", token,
                "--data-dir", str(folder / "agent"), "--slots", str(slots),
            ]  # fmt: skip
            with program(folder / "agent.log", agent_arguments):
                yield client
