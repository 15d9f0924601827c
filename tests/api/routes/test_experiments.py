"""/experiments on both databases: what is answered, and that bad input creates nothing."""

from typing import Any

import httpx
import pytest

EXPERIMENTS = "/api/v1/experiments"
SWEEP: dict[str, Any] = {
    "name": "rates",
    "kind": "sweep",
    "job": {"name": "digits", "task": {"name": "digits"}},
    "space": {"training.learning_rate": [0.5, 0.25]},
    "method": "grid",
    "objective": {"metric": "eval_accuracy"},
}
YAML = b"""
name: rates
kind: sweep
job: {name: digits, task: {name: digits}}
space: {training.learning_rate: {log: [0.001, 1]}}
method: random
trials: 3
objective: {metric: eval_accuracy, at: best}
"""


async def test_experiment_is_created_read_and_commanded(client: httpx.AsyncClient) -> None:
    made = await client.post(EXPERIMENTS, json=SWEEP)
    assert made.status_code == 201
    experiment = made.json()
    assert made.headers["location"] == f"{EXPERIMENTS}/{experiment['id']}"
    assert experiment["counts"] == {"pending": 2}
    assert experiment["spec"]["objective"] == {
        "metric": "eval_accuracy",
        "goal": "max",
        "at": "last",
    }
    path = f"{EXPERIMENTS}/{experiment['id']}"
    trials = (await client.get(f"{path}/trials")).json()["items"]
    assert [t["values"]["training.learning_rate"] for t in trials] == [0.5, 0.25]
    for action, state in (("/pause", "paused"), ("/resume", "running")):
        done = await client.put(f"{path}{action}")
        assert (done.status_code, done.json()["state"]) == (202, state)
    refused = await client.put(f"{path}/resume")
    assert (refused.status_code, refused.json()["title"]) == (
        409, "Not possible in the current state",
    )  # fmt: skip
    done = await client.delete(path)
    assert (done.status_code, done.json()["state"]) == (202, "cancelled")
    assert (await client.get(path)).json()["state"] == "cancelled"


async def test_dry_run_lists_the_trials_and_creates_nothing(client: httpx.AsyncClient) -> None:
    asked = {"dry_run": "true"}
    reply = await client.post(EXPERIMENTS, json=SWEEP | {"repeats": 3}, params=asked)
    assert reply.status_code == 200
    plan = reply.json()
    assert (plan["name"], plan["runs"], plan["code_missing"]) == ("rates", 6, False)
    assert plan["configurations"] == [
        {"number": 1, "values": {"training.learning_rate": 0.5}, "problem": None},
        {"number": 2, "values": {"training.learning_rate": 0.25}, "problem": None},
    ]
    assert (plan["spec"]["parallel"], plan["hint"]) == (4, None)
    refused = await client.post(EXPERIMENTS, json=SWEEP | {"space": {}}, params=asked)
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "space")
    with_code = {**SWEEP, "job": {**SWEEP["job"], "code": "0" * 64}}
    assert (await client.post(EXPERIMENTS, json=with_code, params=asked)).json()["code_missing"]
    assert (await client.get(EXPERIMENTS)).json()["items"] == []


async def test_experiments_are_read_from_yaml_and_paged(client: httpx.AsyncClient) -> None:
    headers = {"Content-Type": "application/yaml"}
    ids = []
    for _ in range(2):
        made = await client.post(EXPERIMENTS, content=YAML, headers=headers)
        assert made.status_code == 201, made.text
        ids.append(made.json()["id"])
    page = (await client.get(EXPERIMENTS, params={"limit": 1})).json()
    rest = (await client.get(EXPERIMENTS, params={"cursor": page["next_cursor"]})).json()
    assert [e["id"] for e in page["items"] + rest["items"]] == ids[::-1]


@pytest.mark.parametrize(
    ("changes", "field", "word"),
    [
        ({"space": {}}, "space", "empty"),
        ({"space": {"training.learning_rate": [0.5, -1]}}, "space.training.learning_rate", "0"),
        ({"trials": 0}, "trials", "at least 1"),
        ({"method": "tpe"}, "trials", "is required for method tpe"),
        ({"job": {"name": "x", "code": "0" * 64, "script": {"path": "x.py"}},
          "space": {"resources.workers": [1]}}, "job.code", "no code with this SHA-256"),
    ],
)  # fmt: skip
async def test_bad_experiment_creates_nothing(
    client: httpx.AsyncClient, changes: dict[str, Any], field: str, word: str
) -> None:
    refused = await client.post(EXPERIMENTS, json={**SWEEP, **changes})
    problem = refused.json()
    assert (refused.status_code, problem["title"]) == (422, "Invalid experiment")
    (error,) = problem["errors"]
    assert error["field"] == field
    assert word in error["message"]
    assert (await client.get(EXPERIMENTS)).json()["items"] == []


async def test_other_content_types_are_refused(client: httpx.AsyncClient) -> None:
    refused = await client.post(EXPERIMENTS, content=b"x", headers={"Content-Type": "text/plain"})
    assert refused.status_code == 415
    missing = await client.get(f"{EXPERIMENTS}/nothing/trials")
    assert (missing.status_code, missing.json()["detail"]) == (
        404, "there is no experiment 'nothing'",
    )  # fmt: skip


async def test_experiment_is_analyzed_and_reported(client: httpx.AsyncClient) -> None:
    path = f"{EXPERIMENTS}/{(await client.post(EXPERIMENTS, json=SWEEP)).json()['id']}"
    done = await client.post(f"{path}/analyze")
    assert done.status_code == 200
    analysis = done.json()
    assert analysis["findings"][0].startswith("The experiment is running: 0 of 2 runs have ended.")
    assert (analysis["best"], analysis["scaling"], analysis["comparisons"]) == (None, None, [])
    assert [row["values"] for row in analysis["table"]] == [
        {"training.learning_rate": rate} for rate in (0.5, 0.25)
    ]
    for form, media in (
        ("html", "text/html; charset=utf-8"),
        ("md", "text/markdown; charset=utf-8"),
        ("json", "application/json"),
        ("csv", "text/csv; charset=utf-8"),
    ):
        report = await client.get(f"{path}/report", params={"format": form})
        assert (report.status_code, report.headers["content-type"]) == (200, media)
        assert report.headers["content-disposition"].endswith(f'.{form}"')
        assert report.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in report.headers["content-security-policy"]
    assert (await client.get(f"{path}/report")).text.startswith("<!doctype html>")


async def test_report_refuses_unknown_formats_and_experiments(client: httpx.AsyncClient) -> None:
    path = f"{EXPERIMENTS}/{(await client.post(EXPERIMENTS, json=SWEEP)).json()['id']}"
    refused = await client.get(f"{path}/report", params={"format": "pdf"})
    assert refused.status_code == 422
    (error,) = refused.json()["errors"]
    assert error["field"] == "format"
    assert error["message"] == "must be one of html, md, json, csv"
    for method, action in (("POST", "analyze"), ("GET", "report")):
        missing = await client.request(method, f"{EXPERIMENTS}/nothing/{action}")
        assert (missing.status_code, missing.json()["detail"]) == (
            404, "there is no experiment 'nothing'",
        )  # fmt: skip
