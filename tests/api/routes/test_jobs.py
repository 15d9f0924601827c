"""Jobs through the API: commands, wrong states, lists and pages."""

from typing import Any

import httpx
import pytest
from support.cluster.web import FIRST_ADMIN

API = "/api/v1"
SPEC: dict[str, Any] = {"name": "digits", "task": {"name": "digits"}, "training": {"steps": 20}}


async def submitted(client: httpx.AsyncClient, name: str = "digits") -> str:
    reply = await client.post(f"{API}/training/jobs", json={**SPEC, "name": name})
    assert reply.status_code == 201, reply.text
    return str(reply.json()["id"])


async def state(client: httpx.AsyncClient, job: str) -> str:
    return str((await client.get(f"{API}/training/jobs/{job}")).json()["state"])


async def test_waiting_job_is_paused_resumed_and_cancelled(client: httpx.AsyncClient) -> None:
    job = f"{API}/training/jobs/{await submitted(client)}"
    for method, path, expected in (
        ("PUT", "/pause", "paused"), ("PUT", "/pause", "paused"), ("PUT", "/resume", "queued"),
        ("DELETE", "", "cancelled"), ("DELETE", "", "cancelled"),
    ):  # fmt: skip
        reply = await client.request(method, job + path)
        assert reply.status_code == 202, reply.text
        assert reply.json()["state"] == expected
        assert reply.json()["reason"]
    for action in ("pause", "resume"):
        refused = await client.put(f"{job}/{action}")
        assert refused.status_code == 409
        assert refused.headers["content-type"] == "application/problem+json"
        assert "cancelled" in refused.json()["detail"]
    assert (await client.get(job)).json()["state"] == "cancelled"


async def test_paused_job_is_resumed_in_another_way(client: httpx.AsyncClient) -> None:
    job = f"{API}/training/jobs/{await submitted(client)}"
    changes = {"resources": {"workers": 2}, "parallelism": {"strategy": "fsdp"}}
    refused = await client.put(f"{job}/resume", json=changes)
    assert refused.status_code == 409
    assert (await client.get(job)).json()["world_size"] == 1
    await client.put(f"{job}/pause")
    for wrong, named in (
        ({"resources": {"workers": 0}}, "resources.workers"),
        ({"parallelism": {"strategy": "fsdp", "servers": 1}}, "parallelism.servers"),
        ({"training": {"steps": 3}}, "training"),
    ):
        refused = await client.put(f"{job}/resume", json=wrong)
        assert refused.status_code == 422, refused.text
        assert refused.json()["errors"][0]["field"] == named
    assert (await client.get(job)).json()["state"] == "paused"
    reply = (await client.put(f"{job}/resume", json=changes)).json()
    assert (reply["state"], reply["world_size"]) == ("queued", 2)
    assert reply["spec"]["parallelism"]["strategy"] == "fsdp"
    reason = f"resumed by {FIRST_ADMIN} with resources.workers 2, parallelism.strategy fsdp"
    assert reply["reason"].startswith(reason)


async def test_waiting_job_is_resized(client: httpx.AsyncClient) -> None:
    job = f"{API}/training/jobs/{await submitted(client)}"
    reply = await client.put(f"{job}/resize", json={"workers": 4})
    assert reply.status_code == 202, reply.text
    assert (reply.json()["state"], reply.json()["world_size"]) == ("queued", 4)
    for body, named in (
        ({"workers": 0}, "resources.workers"),
        ({"min_workers": 2}, "resources.max_workers"),
        ({"workers": 2, "max_workers": 3}, "resources.workers"),
        ({"workers": "2"}, "workers"),
        ({"worker": 2}, "worker"),
        ({}, "workers"),
    ):
        refused = await client.put(f"{job}/resize", json=body)
        assert refused.status_code == 422, refused.text
        assert refused.json()["errors"][0]["field"] == named
    assert (await client.get(job)).json()["world_size"] == 4
    await client.delete(job)
    refused = await client.put(f"{job}/resize", json={"workers": 2})
    assert refused.status_code == 409
    assert "restore one of its checkpoints" in refused.json()["detail"]


async def test_jobs_are_listed_page_by_page(client: httpx.AsyncClient) -> None:
    jobs = [await submitted(client, f"job-{number}") for number in range(5)]
    seen: list[str] = []
    cursor: str | None = None
    while True:
        params: dict[str, Any] = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = (await client.get(f"{API}/training/jobs", params=params)).json()
        seen += [job["id"] for job in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == jobs[::-1]
    await client.delete(f"{API}/training/jobs/{jobs[0]}")
    found = await client.get(f"{API}/training/jobs", params={"state": ["cancelled", "failed"]})
    assert [job["id"] for job in found.json()["items"]] == jobs[:1]


async def test_jobs_are_found_by_name_and_id_prefix(
    client: httpx.AsyncClient,
) -> None:
    names = ["sweep 1", "Sweep-2", "100% sure", "under_score", "ÜBUNG"]
    ids = [await submitted(client, name=name) for name in names]

    async def found(text: str) -> list[int]:
        answer = await client.get(f"{API}/training/jobs", params={"search": text})
        assert answer.status_code == 200
        return sorted(ids.index(job["id"]) for job in answer.json()["items"])

    assert await found("sweep") == await found("WEEP") == [0, 1]
    assert await found(ids[2][:8].upper()) == [2]
    assert await found(ids[2][1:]) == []
    assert await found("übung") == [4]
    assert await found("sweep\xa01") == await found("sweep\u30001") == [0]
    assert await found("sweep\u20091") == [0]
    # As they are written, and not as patterns of SQL.
    assert await found("%") == [2]
    assert await found("_") == [3]
    refused = await client.get(f"{API}/training/jobs?search=a%00b")
    assert refused.status_code == 422
    assert [error["field"] for error in refused.json()["errors"]] == ["search"]


async def test_events_list_the_jobs_history(client: httpx.AsyncClient) -> None:
    job = await submitted(client)
    await client.put(f"{API}/training/jobs/{job}/pause")
    path = f"{API}/training/jobs/{job}/events"
    events = (await client.get(path)).json()["items"]
    assert [event["kind"] for event in events].count("state") == 2
    assert events[-1]["data"]["state"] == "paused"
    assert events[-1]["time"].endswith("Z")
    first = (await client.get(path, params={"limit": 1})).json()
    rest = (await client.get(path, params={"cursor": first["next_cursor"]})).json()
    assert first["items"] + rest["items"] == events
    behind = (await client.get(path, params={"after": events[0]["seq"]})).json()["items"]
    assert behind == events[1:]


@pytest.mark.parametrize("what", ["logs", "attempts", "events"])
async def test_new_job_has_lists(client: httpx.AsyncClient, what: str) -> None:
    job = await submitted(client)
    reply = await client.get(f"{API}/training/jobs/{job}/{what}")
    assert reply.status_code == 200
    assert {"items", "next_cursor"} <= set(reply.json())


async def test_logs_are_downloaded_as_text(client: httpx.AsyncClient) -> None:
    job = await submitted(client)
    reply = await client.get(f"{API}/training/jobs/{job}/logs/download?rank=0")
    assert (reply.status_code, reply.text) == (200, "")
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    assert reply.headers["content-disposition"] == f'attachment; filename="{job}.log"'


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"at": "1.0.stdout"}, "at"),
        ({"at": "1.0.log.0"}, "at"),
        ({"search": ""}, "search"),
        ({"before": "x"}, "before"),
        ({"tail": 5, "before": "x"}, "before"),
        ({"tail": 5, "search": "x"}, "tail"),
    ],
)
async def test_impossible_log_page_is_refused(
    client: httpx.AsyncClient, query: dict[str, str], field: str
) -> None:
    job = await submitted(client)
    reply = await client.get(f"{API}/training/jobs/{job}/logs", params=query)
    assert reply.status_code == 422
    assert [error["field"] for error in reply.json()["errors"]] == [field]


async def test_new_job_has_no_metrics_or_checkpoints(client: httpx.AsyncClient) -> None:
    job = await submitted(client)
    assert (await client.get(f"{API}/metrics/jobs/{job}")).json() == {"series": []}
    reply = await client.get(f"{API}/checkpoints/jobs/{job}")
    assert reply.json() == {"items": [], "next_cursor": None}


async def test_waiting_job_is_queued_with_reason(client: httpx.AsyncClient) -> None:
    job = await submitted(client)
    page = (await client.get(f"{API}/cluster/queue")).json()
    queue = page["items"]
    assert ([entry["job_id"] for entry in queue], page["total"]) == ([job], 1)
    assert queue[0]["position"] == 1
    assert queue[0]["reason"]
    found = (await client.get(f"{API}/cluster/queue?job_id={job}")).json()
    assert found == page
    assert (await client.get(f"{API}/cluster/queue?job_id=other")).json()["items"] == []
    summary = (await client.get(f"{API}/metrics/cluster/summary")).json()
    assert summary["jobs"]["queued"] == 1
    assert summary["nodes"] == summary["devices"] == 0


async def test_jobs_are_sorted_and_filtered(client: httpx.AsyncClient) -> None:
    ids = []
    for rate, user in ((0.1, "maria"), (0.001, "jo"), (0.01, "maria")):
        spec = {**SPEC, "parameters": {"lr": rate}, "user": user}
        ids.append((await client.post(f"{API}/training/jobs", json=spec)).json()["id"])

    async def found(**params: str) -> list[int]:
        reply = await client.get(f"{API}/training/jobs", params=params)
        assert reply.status_code == 200, reply.text
        return [ids.index(job["id"]) for job in reply.json()["items"]]

    assert await found(sort="parameters.lr") == [1, 2, 0]
    assert await found(sort="-parameters.lr", query="user:maria lr>0.001") == [0, 2]
    assert await found(query="-user:maria", state="queued", search="digit") == [1]
    await client.put(f"{API}/training/jobs/{ids[1]}/pause")
    changes = {"parallelism": {"strategy": "fsdp"}, "resources": {"workers": 2}}
    await client.put(f"{API}/training/jobs/{ids[1]}/resume", json=changes)
    assert await found(query="strategy:fsdp") == [1]


async def test_wrong_query_is_refused_at_its_character(client: httpx.AsyncClient) -> None:
    reply = await client.get(f"{API}/training/jobs", params={"query": "digits step>many"})
    assert reply.status_code == 422
    assert reply.json()["errors"] == [
        {
            "field": "query",
            "message": "at character 13: expected a number",
            "value": "digits step>many",
            "position": 12,
        }
    ]
    reply = await client.get(f"{API}/training/jobs", params={"sort": "-nmae"})
    assert reply.status_code == 422
    assert "did you mean name?" in reply.json()["detail"]
