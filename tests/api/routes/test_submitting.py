"""What is submitted: bad input is refused by field, and creates nothing."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

JOBS = "/api/v1/training/jobs"
SPEC: dict[str, Any] = {"name": "digits", "task": {"name": "digits"}, "training": {"steps": 20}}


def changed(**changes: Any) -> dict[str, Any]:
    return {**SPEC, **changes}


BAD_SPECS: dict[str, tuple[Any, str, str]] = {
    "misspelt key": (changed(resorces={}), "resorces", "resources"),
    "misspelt inner key": (changed(training={"stepz": 3}), "training.stepz", "steps"),
    "misspelt parameter of the task": (
        changed(task={"name": "digits", "params": {"hiden": [3]}}),
        "task.params.hiden",
        "hidden",
    ),
    "unknown task": (changed(task={"name": "digitz"}), "task.name", "digits"),
    "wrong type": (changed(training={"steps": "many"}), "training.steps", "an integer"),
    "a list for an object": (changed(training=[1]), "training", ""),
    "no steps": (changed(training={"steps": 0}), "training.steps", "1"),
    "negative workers": (changed(resources={"workers": -1}), "resources.workers", "1"),
    "absurd workers": (changed(resources={"workers": 10**9}), "resources.workers", "4,096"),
    "absurd batch": (
        changed(training={"global_batch_size": 10**30}),
        "training.global_batch_size",
        "64 bits",
    ),
    "absurd rate": (changed(training={"learning_rate": 1e300}), "training.learning_rate", ""),
    "task and script": (changed(script={"path": "/x.py"}), "script", "exclude"),
    "neither task nor script": ({"name": "x"}, "task", "exactly one"),
    "no name": ({"task": {"name": "digits"}}, "name", "is missing"),
    "empty name": (changed(name=""), "name", "must not be empty"),
    "NUL in the name": (changed(name="a\0b"), "name", "control"),
    "a line break in the name": (changed(name="a\nb"), "name", "control"),
    "half a surrogate pair": (changed(name="\ud800"), "", ""),
    "steps and epochs": (changed(training={"steps": 1, "epochs": 1}), "training.epochs", "exclude"),
    "a batch that does not divide": (
        changed(resources={"workers": 3}, training={"global_batch_size": 64}),
        "training.global_batch_size",
        "63",
    ),
    "a path that is not absolute": (
        changed(checkpoint={"path": "x"}),
        "checkpoint.path",
        "absolute",
    ),
    "a list": ([SPEC], "", "an object"),
    "a number": (3, "", "an object"),
    "nothing": (None, "", "an object"),
}
BAD_TEXTS: dict[str, tuple[str, bytes, str]] = {
    "NaN": ("application/json", b'{"name": "x", "training": {"learning_rate": NaN}}', "NaN"),
    "infinity": ("text/yaml", b"name: x\ntask: {name: digits}\ntraining: {seed: .inf}", "finite"),
    "deep JSON": ("application/json", b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}", "nested"),
    "deep YAML": ("text/yaml", b"name: " + b"[" * 10_000 + b"]" * 10_000, "nested"),
    "aliases": ("application/yaml", b"a: &a [1]\nname: *a", "alias"),
    "an object's tag": ("application/yaml", b"name: !!python/object/apply:os.system ['true']", ""),
    "a key given twice": ("application/yaml", b"name: a\nname: b", "twice"),
    "no JSON": ("application/json", b'{"name": ', "JSON"),
    "no YAML": ("application/yaml", b"name: [", "YAML"),
    "an empty body": ("application/json", b"", ""),
    "not UTF-8": ("application/yaml", b"name: \xff\xfe", "UTF-8"),
    "a NUL byte": ("application/yaml", b"name: a\0b", "NUL"),
}  # fmt: skip


async def count(client: httpx.AsyncClient) -> int:
    return len((await client.get(JOBS)).json()["items"])


def check_problem(reply: httpx.Response, status: int) -> dict[str, Any]:
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = reply.json()
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"]
    return problem


async def test_bad_specs_are_refused_by_field(client: httpx.AsyncClient) -> None:
    wrong = []
    for name, (spec, field, message) in BAD_SPECS.items():
        body = json.dumps(spec)
        for kind in ("application/json", "application/yaml"):
            reply = await client.post(JOBS, content=body, headers={"Content-Type": kind})
            problem = check_problem(reply, 422)
            fields = {error["field"]: error["message"] for error in problem["errors"]}
            if message.lower() not in fields.get(field, "").lower() or field not in fields:
                wrong.append((name, kind, problem))
    assert not wrong
    assert await count(client) == 0


async def test_bad_texts_are_refused(client: httpx.AsyncClient) -> None:
    for name, (kind, body, message) in BAD_TEXTS.items():
        reply = await client.post(JOBS, content=body, headers={"Content-Type": kind})
        problem = check_problem(reply, 422)
        assert message.lower() in problem["detail"].lower(), (name, problem)
    assert await count(client) == 0


@pytest.mark.parametrize("kind", ["text/plain", "application/xml", "", "application/json2"])
async def test_unsupported_content_type_lists_accepted_types(
    client: httpx.AsyncClient, kind: str
) -> None:
    reply = await client.post(JOBS, content=json.dumps(SPEC), headers={"Content-Type": kind})
    problem = check_problem(reply, 415)
    for accepted in ("application/json", "application/yaml", "application/x-yaml", "text/yaml"):
        assert accepted in problem["detail"]
    assert await count(client) == 0


async def test_oversized_body_is_refused_before_reading(
    client: httpx.AsyncClient,
) -> None:
    large = b"name: x\n#" + b"y" * 10_000_000
    reply = await client.post(JOBS, content=large, headers={"Content-Type": "application/yaml"})
    assert "128 KiB" in check_problem(reply, 413)["detail"]

    async def without_a_length() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b"#" * 65536

    reply = await client.post(
        JOBS, content=without_a_length(), headers={"Content-Type": "text/yaml"}
    )
    check_problem(reply, 413)
    assert await count(client) == 0


async def test_spec_of_just_128_kibibytes_is_taken(client: httpx.AsyncClient) -> None:
    text = b"name: x\ntask: {name: digits}\n#"
    body = text + b"y" * (128 * 1024 - len(text))
    reply = await client.post(JOBS, content=body, headers={"Content-Type": "application/yaml"})
    assert reply.status_code == 201, reply.text


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; charset=utf-8", "application/yaml",
             "application/x-yaml", "text/yaml"]
)  # fmt: skip
async def test_spec_is_taken_as_json_or_yaml(client: httpx.AsyncClient, kind: str) -> None:
    reply = await client.post(JOBS, content=json.dumps(SPEC), headers={"Content-Type": kind})
    assert reply.status_code == 201, reply.text
    job = reply.json()
    assert job["state"] == "queued"
    assert job["spec"]["training"]["steps"] == 20
    assert job["created_at"].endswith("Z")
    read = await client.get(reply.headers["Location"])
    assert read.json()["id"] == job["id"]


async def test_dry_run_creates_nothing(client: httpx.AsyncClient) -> None:
    reply = await client.post(JOBS, json=SPEC, params={"dry_run": "true"})
    assert reply.status_code == 200
    assert reply.json()["spec"]["task"] == {"name": "digits", "params": {}}
    assert "no node has joined" in reply.json()["shortage"]
    check_problem(await client.post(JOBS, json={}, params={"dry_run": "true"}), 422)
    problem = check_problem(await client.post(JOBS, json=SPEC, params={"dryrun": "true"}), 422)
    assert "dry_run" in problem["errors"][0]["message"]
    assert await count(client) == 0
