"""Users: who may add, see, change and remove them, and what their names and passwords may be."""

from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from support.login.accounts import PASSWORD, Person, new_person


def names(reply: httpx.Response) -> list[str]:
    assert reply.status_code == 200, reply.text
    return [item["name"] for item in reply.json()["items"]]


async def test_admin_adds_users_who_log_in(app: FastAPI, admin: Person) -> None:
    added = await admin.post("users", json={"name": "maria", "password": PASSWORD})
    assert added.status_code == 201
    user = added.json()
    assert (user["name"], user["kind"], user["admin"]) == ("maria", "person", False)
    assert PASSWORD not in added.text
    maria = Person(app)
    reply = await maria.log_in("maria")
    assert reply.status_code == 204
    assert "HttpOnly" in reply.headers["Set-Cookie"]
    me = (await maria.get("auth/me")).json()
    assert me == {"user": "maria", "admin": False, "how": "session", "projects": []}


async def test_others_add_no_users(app: FastAPI) -> None:
    maria = await new_person(app, "maria", vision="maintainer")
    for body in ({"name": "otto"}, {"name": "otto", "admin": True}):
        assert (await maria.post("users", json=body)).status_code == 403
    assert (await maria.patch("users/maria", json={"admin": True})).status_code == 403
    assert (await maria.post("projects", json={"name": "x"})).status_code == 403
    assert (await maria.post("groups", json={"name": "x"})).status_code == 403


async def test_users_see_members_of_their_projects(app: FastAPI, admin: Person) -> None:
    maria = await new_person(app, "maria", vision="viewer")
    await new_person(app, "otto", vision="member", text="member")
    await new_person(app, "anna", text="viewer")
    await new_person(app, "zoe")
    await admin.post("groups", json={"name": "lab"})
    await admin.put("groups/lab/members/zoe")
    assert names(await maria.get("users")) == ["maria", "otto"]
    await admin.put("projects/vision/members/group:lab", json={"role": "viewer"})
    assert names(await maria.get("users")) == ["maria", "otto", "zoe"]
    assert set(names(await admin.get("users"))) >= {"anna", "maria", "otto", "zoe"}
    assert (await maria.delete("users/anna")).status_code == 404
    assert (await maria.delete("users/otto")).status_code == 403


async def test_list_of_users_has_pages(app: FastAPI, admin: Person) -> None:
    for name in ("a", "b", "c"):
        await admin.post("users", json={"name": name})
    found: list[str] = []
    asked: dict[str, Any] = {"limit": 2}
    while True:
        page = await admin.get("users", params=asked)
        found += names(page)
        if not (cursor := page.json()["next_cursor"]):
            break
        asked["cursor"] = cursor
    assert found == sorted(found)
    assert {"a", "b", "c"} < set(found)


@pytest.mark.parametrize(
    "name",
    [
        "", " maria", "maria ", "ma\u202eria", "\ufffd", "ma\u200bria", "ma\u0000ria", "ma\nria",
        "a/b", "group:x", "..", "me", "ma\u00a0ria", "x" * 129,
    ],
)  # fmt: skip
async def test_names_that_mislead_are_refused(admin: Person, name: str) -> None:
    content = b'{"name": "' + name.encode("unicode-escape").replace(b"\\x", b"\\u00") + b'"}'
    headers = {"Content-Type": "application/json"}
    reply = await admin.post("users", content=content, headers=headers)
    assert reply.status_code == 422
    assert reply.json()["errors"][0]["field"] == "name"


async def test_names_differ_by_more_than_case(admin: Person) -> None:
    assert (await admin.post("users", json={"name": "Stra\u00dfe"})).status_code == 201
    for name in ("strasse", "STRASSE", "stra\u00dfe"):
        assert (await admin.post("users", json={"name": name})).status_code == 409
    composed = await admin.post("users", json={"name": "Zoe\u0308 Smith"})
    assert composed.json()["name"] == "Zo\u00eb Smith"
    assert (await admin.post("users", json={"name": "zo\u00eb smith"})).status_code == 409
    assert (await admin.delete("users/Zoe\u0308%20Smith")).status_code == 204


async def test_last_admin_stays(app: FastAPI, admin: Person) -> None:
    me = (await admin.get("auth/me")).json()["user"]
    for reply in (
        await admin.delete(f"users/{me}"),
        await admin.patch(f"users/{me}", json={"admin": False}),
        await admin.patch(f"users/{me}", json={"removed": True}),
    ):
        assert reply.status_code == 409
        assert "last admin" in reply.json()["detail"]
    maria = await new_person(app, "maria")
    assert (await admin.patch("users/maria", json={"admin": True})).status_code == 200
    assert (await maria.patch(f"users/{me}", json={"admin": False})).status_code == 200
    assert (await admin.post("groups", json={"name": "x"})).status_code == 403
    assert (await maria.delete("users/maria")).status_code == 409


async def test_removed_user_loses_everything_at_once(app: FastAPI, admin: Person) -> None:
    maria = await new_person(app, "maria", vision="member")
    program = await maria.token("ci")
    assert (await program.get("auth/me")).status_code == 200
    assert (await admin.delete("users/maria")).status_code == 204
    for each in (maria, program):
        assert (await each.get("auth/me")).status_code == 401
    assert (await Person(app).log_in("maria")).status_code == 401
    assert "maria" not in names(await admin.get("users"))
    assert (await admin.get("projects/vision/members")).json()["items"] == []
    assert (await admin.post("users", json={"name": "Maria"})).status_code == 409
    assert names(await admin.get("users?removed=true")) == ["maria"]
    restored = await admin.patch("users/maria", json={"removed": False, "password": PASSWORD})
    assert restored.json()["removed_at"] is None
    assert (await maria.log_in("maria")).status_code == 204
    assert (await maria.get("auth/me")).json()["projects"] == []
    assert (await program.get("auth/me")).status_code == 401


async def test_jobs_of_removed_user_continue(app: FastAPI, admin: Person) -> None:
    maria = await new_person(app, "maria", vision="member")
    spec = {"name": "quick", "task": {"name": "digits"}}
    made = await maria.post("training/jobs", json=spec)
    assert made.status_code == 201, made.text
    assert (await admin.delete("users/maria")).status_code == 204
    job = (await admin.get(f"training/jobs/{made.json()['id']}")).json()
    assert (job["user"], job["project"], job["state"]) == ("maria", "vision", "queued")


async def test_own_password_needs_the_old_one(app: FastAPI, admin: Person) -> None:
    maria, elsewhere = await new_person(app, "maria"), Person(app)
    await elsewhere.log_in("maria")
    new = "another long password"
    for old in ({}, {"old_password": "wrong"}):
        refused = await maria.patch("users/maria", json={"password": new, **old})
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["field"] == "old_password"
    right = {"password": new, "old_password": PASSWORD}
    assert (await maria.patch("users/maria", json=right)).status_code == 200
    assert (await maria.get("auth/me")).status_code == 200
    assert (await elsewhere.get("auth/me")).status_code == 401
    assert (await elsewhere.log_in("maria")).status_code == 401
    assert (await elsewhere.log_in("maria", new)).status_code == 204
    # An admin who sets it ends all of them.
    assert (await admin.patch("users/maria", json={"password": PASSWORD})).status_code == 200
    assert (await maria.get("auth/me")).status_code == 401


async def test_short_password_is_refused(admin: Person) -> None:
    reply = await admin.post("users", json={"name": "maria", "password": "short"})
    assert reply.status_code == 422
    assert "short" not in reply.text


async def test_wrong_passwords_cost_a_growing_pause(app: FastAPI, admin: Person) -> None:
    await admin.post("users", json={"name": "maria", "password": PASSWORD})
    person = Person(app)
    for name in ("maria", "nobody"):
        app.state.coordinator.accounts.pauses._failures.clear()
        replies = [await person.log_in(name, "wrong one") for _ in range(6)]
        assert [reply.status_code for reply in replies] == [401] * 5 + [429]
        assert len({reply.json()["detail"] for reply in replies[:5]}) == 1
        assert int(replies[5].headers["Retry-After"]) >= 1
    assert (await person.log_in("maria")).status_code == 429  # though it is the right one


async def test_service_account_belongs_to_its_project(app: FastAPI, admin: Person) -> None:
    maria = await new_person(app, "maria", vision="maintainer", text="member")
    service = {"name": "ci", "kind": "service", "project": "vision"}
    assert (await maria.post("users", json={**service, "project": "text"})).status_code == 403
    assert (await maria.post("users", json={**service, "project": "other"})).status_code == 404
    assert (await maria.post("users", json={**service, "password": PASSWORD})).status_code == 422
    assert (await maria.post("users", json=service)).status_code == 201
    await maria.put("projects/vision/members/ci", json={"role": "member"})
    reply = await admin.put("projects/text/members/ci", json={"role": "member"})
    assert reply.status_code == 409
    made = await maria.post("auth/tokens", json={"name": "nightly", "user": "ci"})
    program = Person(app, made.json()["token"])
    me = (await program.get("auth/me")).json()
    assert (me["user"], me["projects"]) == ("ci", [{"name": "vision", "role": "member"}])
    # It makes neither tokens nor logins of its own.
    assert (await program.post("auth/tokens", json={"name": "x"})).status_code == 403
    assert (await program.post("auth/codes")).status_code == 403
    listed = await maria.get("auth/tokens?user=ci")
    assert [token["name"] for token in listed.json()["items"]] == ["nightly"]
    otto = await new_person(app, "otto", vision="member")
    assert (await otto.get("auth/tokens?user=ci")).status_code == 403
    assert (await otto.delete(f"auth/tokens/{made.json()['id']}")).status_code == 404
    assert (await otto.post("auth/tokens", json={"name": "x", "user": "ci"})).status_code == 403
    assert (await maria.delete(f"auth/tokens/{made.json()['id']}")).status_code == 204
    assert (await program.get("auth/me")).status_code == 401
    assert (await maria.delete("users/ci")).status_code == 204


async def test_no_one_makes_tokens_of_persons(app: FastAPI, admin: Person) -> None:
    await new_person(app, "maria", vision="member")
    otto = await new_person(app, "otto", vision="maintainer")
    body = {"name": "x", "user": "maria"}
    assert (await admin.post("auth/tokens", json=body)).status_code == 403
    assert (await otto.post("auth/tokens", json=body)).status_code == 404
    assert (await admin.get("auth/tokens?user=maria")).status_code == 200
