"""`kill -9` of the coordinator's process while a message is on its way."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.alerts import signature_of
from support.cluster.coordinator_process import coordinator, url_of
from support.receiver import receiver
from support.waiting import eventually

JOB = {"name": "waits", "task": {"name": "digits"}}


def create(url: str, target: str) -> Any:
    """Submit a job, which has to wait, and an alert that reports that."""
    submitted = httpx.post(f"{url}/api/v1/training/jobs", json=JOB, timeout=60)
    assert submitted.status_code == 201, submitted.text
    alert = {
        "name": "queue",
        "on": ["job.waiting"],
        "waiting_seconds": 0,
        "target": {"kind": "webhook", "url": target},
    }
    made = httpx.post(f"{url}/api/v1/alerts", json=alert, timeout=60)
    assert made.status_code == 201, made.text
    return made.json()


def log_of(url: str, alert_id: str) -> list[Any]:
    page = httpx.get(f"{url}/api/v1/alerts/{alert_id}/deliveries", timeout=60).json()
    return list(page["items"])


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_killed_coordinator_delivers_after_its_restart(
    kind: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database = request.getfixturevalue("new_postgres")() if kind == "postgres" else ""
    (tmp_path / "trainhall.toml").write_text("[server]\nalerts-private-targets = true\n")
    monkeypatch.setenv("TRAINHALL_CONFIG", str(tmp_path / "trainhall.toml"))
    async with receiver(held=True) as target:
        with coordinator(tmp_path, database=database) as process:
            url = await asyncio.to_thread(url_of, process)
            alert = await asyncio.to_thread(create, url, target.url)
            async with asyncio.timeout(60):
                await target.arrived.wait()
            process.kill()
            process.wait()
        target.opened.set()
        with coordinator(tmp_path, database=database) as process:
            url = await asyncio.to_thread(url_of, process)
            log = await asyncio.to_thread(
                eventually,
                "the delivery",
                lambda: [d for d in log_of(url, alert["id"]) if d["state"] == "delivered"],
            )
    assert [each["id"] for each in log] == [target.received[0].headers["webhook-id"]]
    assert len(target.received) == 2, "the first try was not acknowledged"
    for got in target.received:
        assert got.headers["webhook-id"] == log[0]["id"]
        assert got.headers["webhook-signature"] == signature_of(
            alert["secret"], got.headers, got.body
        )
