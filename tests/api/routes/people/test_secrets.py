"""Secrets by the API: no answer, refusals included, has a value in it."""

from typing import Any

import pytest
from fastapi import FastAPI
from support.login.accounts import Person, new_person

CANARY = "hf_canary1234567"
HF_TOKEN = "projects/vision/secrets/HF_TOKEN"
SPEC = {
    "name": "quick", "script": {"module": "train", "env": {"DB_PASSWORD": CANARY}},
    "project": "vision", "secrets": ["HF_TOKEN"],
}  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        {"value": [CANARY]}, {"value": CANARY, "note": CANARY}, {"valeu": CANARY},
        {"value": CANARY + "\0"}, {"value": CANARY * 4096}, f'{{"value": "{CANARY}',
    ],
)  # fmt: skip
async def test_refused_bodies_are_not_shown(admin: Person, body: Any) -> None:
    json = {"Content-Type": "application/json"}
    sent = {"content": body, "headers": json} if isinstance(body, str) else {"json": body}
    refused = await admin.put(HF_TOKEN, **sent)
    assert refused.status_code == 422
    assert CANARY not in refused.text


async def test_names_are_checked(admin: Person) -> None:
    for name in ("LD_PRELOAD", "A-B", "TRAINHALL_URL"):
        refused = await admin.put(f"projects/vision/secrets/{name}", json={"value": "x"})
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["field"] == "name"
        assert (await admin.delete(f"projects/vision/secrets/{name}")).status_code == 404


async def test_dry_run_refuses_what_is_not_set_and_warns(app: FastAPI, admin: Person) -> None:
    maria = await new_person(app, "maria", vision="member")
    for path in ("training/jobs", "training/jobs?dry_run=true"):
        refused = await maria.post(path, json=SPEC)
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["field"] == "secrets.0"
    assert (await maria.put(HF_TOKEN, json={"value": CANARY})).status_code == 403
    assert (await admin.put(HF_TOKEN, json={"value": CANARY})).status_code == 204
    listed = await maria.get("projects/vision/secrets")
    assert [each["name"] for each in listed.json()["items"]] == ["HF_TOKEN"]
    assert CANARY not in listed.text
    plan = (await maria.post("training/jobs?dry_run=true", json=SPEC)).json()
    assert [line.split()[0] for line in plan["warnings"]] == ["script.env.DB_PASSWORD"]
