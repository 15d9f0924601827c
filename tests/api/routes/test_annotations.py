"""Tags and notes of jobs through the API: limits, events, queries."""

from typing import Any

import httpx
from support.cluster.web import FIRST_ADMIN
from support.database import on_sqlite

API = "/api/v1/training/jobs"
SPEC: dict[str, Any] = {"name": "digits", "task": {"name": "digits"}, "training": {"steps": 20}}


async def submitted(client: httpx.AsyncClient, **more: Any) -> str:
    reply = await client.post(API, json={**SPEC, **more})
    assert reply.status_code == 201, reply.text
    return str(reply.json()["id"])


async def changed(client: httpx.AsyncClient, job: str, **change: Any) -> Any:
    reply = await client.patch(f"{API}/{job}", json=change)
    assert reply.status_code == 200, reply.text
    return reply.json()


async def test_tags_and_notes_change_in_any_state(client: httpx.AsyncClient) -> None:
    job = await submitted(client, tags=["Draft", "draft", "lr 0.1"], notes="*first*")
    read = (await client.get(f"{API}/{job}")).json()
    assert (read["tags"], read["notes"]) == (["Draft", "lr 0.1"], "*first*")
    await client.delete(f"{API}/{job}")
    read = await changed(client, job, add_tags=["best", "LR 0.1"], remove_tags=["draft", "no"])
    assert (read["tags"], read["state"]) == (["lr 0.1", "best"], "cancelled")
    await changed(client, job, add_tags=["best"])
    read = await changed(client, job, tags=[], notes="a\r\n\tb")
    assert (read["tags"], read["notes"]) == ([], "a\n\tb")
    assert (await changed(client, job, notes=""))["notes"] == ""
    assert read["spec"]["tags"] == ["Draft", "lr 0.1"]
    events = (await client.get(f"{API}/{job}/events")).json()["items"]
    assert [(e["code"], e["reason"]) for e in events if "changed" in e["code"]] == [
        ("tags_changed", f"{FIRST_ADMIN} added tag best and removed tag Draft"),
        ("tags_changed", f"{FIRST_ADMIN} removed tags lr 0.1, best"),
        ("notes_changed", f"notes changed by {FIRST_ADMIN}"),
        ("notes_changed", f"notes removed by {FIRST_ADMIN}"),
    ]


IMPOSSIBLE: list[tuple[dict[str, Any], str, str]] = [
    ({}, "tags", "give tags, add_tags, remove_tags, notes or archived"),
    ({"tags": ["a"], "add_tags": ["b"]}, "tags", "it replaces all tags"),
    ({"tags": ["-a"]}, "tags.0", "begins with a letter or digit"),
    ({"add_tags": ["a,b"]}, "add_tags.0", "at most 64 letters, digits, spaces and"),
    ({"tags": ["a" * 65]}, "tags.0", "at most 64"),
    ({"tags": [f"t{i}" for i in range(33)]}, "tags", "at most 32"),
    ({"add_tags": [f"t{i}" for i in range(33)]}, "add_tags", "would have 33 tags; at most 32"),
    ({"notes": "x" * 10_001}, "notes", "10000"),
    ({"notes": "a\x1b[31m"}, "notes", "may not hold control characters"),
    ({"note": "a"}, "note", "unknown key"),
    ({"archived": "yes"}, "archived", "must be true or false"),
]


@on_sqlite
async def test_impossible_change_is_refused(client: httpx.AsyncClient) -> None:
    job = await submitted(client)
    for change, field, message in IMPOSSIBLE:
        reply = await client.patch(f"{API}/{job}", json=change)
        assert reply.status_code == 422, reply.text
        (problem,) = reply.json()["errors"]
        assert problem["field"] == field, change
        assert message in problem["message"], change
    assert (await client.get(f"{API}/{job}")).json()["tags"] == []
    missing = await client.patch(f"{API}/nothing", json={"notes": ""})
    assert missing.status_code == 404


async def test_spec_with_wrong_tags_is_refused(client: httpx.AsyncClient) -> None:
    reply = await client.post(API, json={**SPEC, "tags": ["ok", "#1"], "notes": "\0"})
    assert reply.status_code == 422
    assert {error["field"] for error in reply.json()["errors"]} == {"tags.1", "notes"}


async def test_changes_stay_when_a_job_resumes_in_another_way(client: httpx.AsyncClient) -> None:
    job = await submitted(client, tags=["draft"])
    await changed(client, job, tags=["best"])
    await client.put(f"{API}/{job}/pause")
    reply = await client.put(f"{API}/{job}/resume", json={"resources": {"workers": 2}})
    assert reply.json()["tags"] == ["best"]


async def test_archived_jobs_are_hidden_until_asked_for(client: httpx.AsyncClient) -> None:
    job, other = await submitted(client, name="old"), await submitted(client, name="new")

    async def listed(**asked: str) -> str:
        found = (await client.get(API, params=asked)).json()["items"]
        return " ".join(each["name"] for each in found)

    refused = await client.patch(f"{API}/{job}", json={"archived": True, "notes": "x"})
    assert (refused.status_code, refused.json()["detail"]) == (
        409,
        f"“old” ({job}) cannot be archived: it is queued; cancel it first, or wait until it has "
        "ended",
    )
    await client.delete(f"{API}/{job}")
    read = await changed(client, job, archived=True)
    assert (read["archived"], read["notes"]) == (True, "")
    assert {"unarchive", "delete"} <= set(read["allowed_commands"])
    assert await changed(client, job, archived=True) == read, "repeated, it changes nothing"
    assert (await client.get("/api/v1/metrics/cluster/summary")).json()["jobs"]["cancelled"] == 0
    for query, names in {
        "": "new", "archived:yes": "old", "archived:no": "new", "archived:yes,no": "new old",
        "-archived:yes": "new", "archived:YES state:cancelled": "old", "name:old": "",
    }.items():  # fmt: skip
        assert await listed(query=query) == names, query
    assert await listed(query="archived:yes", sort="name") == "old"
    assert await listed(search="old") == ""
    wrong = await client.get(API, params={"query": "archived:maybe"})
    assert "at character 10: expected yes or no" in wrong.json()["detail"]
    assert not (await changed(client, job, archived=False))["archived"]
    assert await listed() == "new old"
    events = (await client.get(f"{API}/{job}/events")).json()["items"]
    assert [e["reason"] for e in events if "archived" in e["code"]] == [
        f"archived by {FIRST_ADMIN}", f"unarchived by {FIRST_ADMIN}",
    ]  # fmt: skip
    assert (await client.delete(f"{API}/{other}/record")).status_code == 409
    assert (await client.delete(f"{API}/{job}/record")).status_code == 204
    assert (await client.get(f"{API}/{job}")).status_code == 404
    assert (await client.delete(f"{API}/{job}/record")).status_code == 404


async def test_jobs_are_found_by_tags_and_notes(client: httpx.AsyncClient) -> None:
    specs: dict[str, dict[str, Any]] = {
        "a": {"tags": ["Best", "lr 0.1"]}, "b": {"tags": ["bes"], "notes": "Diverged at 40 %"},
        "c": {},
    }  # fmt: skip
    for name, more in specs.items():
        await submitted(client, **more, name=name)
    for query, expected in {
        "tag:best": "a", "tag=BEST": "a", 'tag:"lr 0.1"': "a", "tag:best,bes": "ba",
        "-tag:best": "cb", "notes:diverged": "b", "notes:%": "b", "-notes:diverged": "ca",
        "tag:x": "",
    }.items():  # fmt: skip
        reply = await client.get(API, params={"query": query, "sort": "-created_at"})
        assert "".join(job["name"] for job in reply.json()["items"]) == expected, query
    refused = await client.get(API, params={"query": "tag>5"})
    assert "expected tag:VALUE; tag is text" in refused.json()["detail"]
