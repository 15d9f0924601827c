"""Projects, groups and roles: who sees and changes them, and when it counts."""

from typing import Any

import pytest
from fastapi import FastAPI
from support.login.accounts import Person, first_admin, new_person

SPEC = {"name": "quick", "task": {"name": "digits"}, "project": "vision"}


async def roles(person: Person) -> dict[str, str]:
    me = (await person.get("auth/me")).json()
    return {each["name"]: each["role"] for each in me["projects"]}


async def test_roles_count_at_once(app: FastAPI, admin: Person) -> None:
    maria = await new_person(app, "maria", vision="viewer")
    assert await roles(maria) == {"vision": "viewer"}
    await admin.put("projects/vision/members/maria", json={"role": "member"})
    assert await roles(maria) == {"vision": "member"}
    await admin.delete("projects/vision/members/maria")
    assert await roles(maria) == {}
    assert (await maria.get("projects/vision")).status_code == 404
    assert (await admin.delete("projects/vision/members/maria")).status_code == 404


async def test_group_gives_the_higher_role(app: FastAPI, admin: Person) -> None:
    maria = await new_person(app, "maria", vision="viewer")
    assert (await admin.post("groups", json={"name": "lab"})).status_code == 201
    await admin.put("projects/vision/members/group:lab", json={"role": "maintainer"})
    assert (await admin.put("groups/lab/members/maria")).status_code == 204
    assert await roles(maria) == {"vision": "maintainer"}
    (group,) = (await maria.get("groups")).json()["items"]
    assert (group["name"], group["members"]) == ("lab", 1)
    members = (await maria.get("groups/lab/members")).json()["items"]
    assert members == [{"user": "maria", "by_provider": False}]
    listed = (await maria.get("projects/vision/members")).json()["items"]
    assert [each["member"] for each in listed] == ["group:lab", "maria"]
    assert (await maria.put("groups/lab/members/maria")).status_code == 403
    assert (await admin.delete("groups/lab/members/maria")).status_code == 204
    assert await roles(maria) == {"vision": "viewer"}
    assert (await admin.delete("groups/lab")).status_code == 204
    assert (await admin.delete("groups/lab")).status_code == 404


async def test_maintainer_manages_members_of_their_project(app: FastAPI) -> None:
    maria = await new_person(app, "maria", vision="maintainer", text="member")
    await new_person(app, "otto")
    otto = "members/otto"
    assert (await maria.put(f"projects/vision/{otto}", json={"role": "viewer"})).status_code == 204
    assert (await maria.put(f"projects/text/{otto}", json={"role": "viewer"})).status_code == 403
    assert (await maria.put(f"projects/default/{otto}", json={"role": "viewer"})).status_code == 404
    unknown = await maria.put("projects/vision/members/nobody", json={"role": "viewer"})
    assert unknown.status_code == 404
    bad = await maria.put(f"projects/vision/{otto}", json={"role": "owner"})
    assert bad.status_code == 422
    refused = await maria.patch("projects/vision", json={"limits": {"priority": 5}})
    assert refused.status_code == 403
    assert (await maria.delete("projects/vision")).status_code == 403


async def test_projects_are_listed_by_role(app: FastAPI, admin: Person) -> None:
    maria = await new_person(app, "maria", vision="viewer")
    await admin.post("projects", json={"name": "text"})
    (project,) = (await maria.get("projects")).json()["items"]
    assert (project["name"], project["role"]) == ("vision", "viewer")
    listed = (await admin.get("projects")).json()["items"]
    assert [each["name"] for each in listed if each["name"] != "default"] == ["text", "vision"]
    assert (await admin.post("projects", json={"name": "VISION"})).status_code == 409


async def test_limits_are_changed_by_admins(admin: Person) -> None:
    made = await admin.post("projects", json={"name": "vision", "limits": {"priority": 3}})
    assert made.json()["limits"]["priority"] == 3
    changed = await admin.patch("projects/vision", json={"limits": {"priority": None}})
    assert changed.json()["limits"]["priority"] is None
    wrong = await admin.patch("projects/vision", json={"limits": {"priority": "high"}})
    assert wrong.status_code == 422


async def test_empty_project_is_deleted(app: FastAPI, admin: Person) -> None:
    maria = await new_person(app, "maria", vision="maintainer")
    await maria.post("users", json={"name": "ci", "kind": "service", "project": "vision"})
    program = await maria.token("narrow", project="vision")
    assert (await admin.delete("projects/vision")).status_code == 204
    assert (await admin.get("projects/vision")).status_code == 404
    assert (await program.get("auth/me")).status_code == 401
    assert await roles(maria) == {}
    (removed,) = (await admin.get("users?removed=true")).json()["items"]
    assert (removed["name"], removed["project"]) == ("ci", None)


async def test_default_project_stays(admin: Person) -> None:
    await admin.post("projects", json={"name": "default"})
    assert (await admin.delete("projects/default")).status_code == 409


async def test_project_with_jobs_is_deleted_on_request(app: FastAPI, admin: Person) -> None:
    await admin.post("projects", json={"name": "vision"})
    job = (await admin.post("training/jobs", json=SPEC)).json()["id"]
    for asked in ("", "?contents=delete"):
        refused = await admin.delete(f"projects/vision{asked}")
        assert refused.status_code == 409
        assert "1 job that have not ended" in refused.json()["detail"]
    assert (await admin.delete(f"training/jobs/{job}")).status_code in (200, 202, 204)
    refused = await admin.delete("projects/vision")
    assert refused.status_code == 409
    assert "has 1 job;" in refused.json()["detail"]
    assert (await admin.delete("projects/vision?contents=delete")).status_code == 204
    assert (await admin.get(f"training/jobs/{job}")).status_code == 404


async def test_contents_deleted_with_project_leave_rows(app: FastAPI, admin: Person) -> None:
    await admin.post("projects", json={"name": "vision"})
    jobs = [(await admin.post("training/jobs", json=SPEC)).json()["id"] for _ in range(2)]
    for job in jobs:
        await admin.delete(f"training/jobs/{job}")
    report = {"title": "Nets", "text": "Fine.", "project": "vision"}
    reports = [(await admin.post("reports", json=report)).json()["id"]]
    assert (await admin.delete("projects/vision?contents=delete")).status_code == 204
    rows = (await admin.get("audit?project=vision&limit=4")).json()["items"]
    assert {(row["action"], row["object"]) for row in rows} == {
        ("project.delete", "vision"), *(("report.delete", each) for each in reports),
        *(("job.delete", job) for job in jobs),
    }  # fmt: skip


async def test_credentials_need_a_project_that_exists(admin: Person) -> None:
    """Else they would have what a later project of this name gives."""
    service = {"name": "ci", "kind": "service", "project": "vision"}
    assert (await admin.post("users", json=service)).status_code == 404
    narrowed = {"name": "ci", "project": "vision"}
    assert (await admin.post("auth/tokens", json=narrowed)).status_code == 422
    await admin.post("projects", json={"name": "vision"})
    assert (await admin.post("users", json=service)).status_code == 201
    assert (await admin.post("auth/tokens", json=narrowed)).status_code == 201


async def test_submission_to_deleted_project_is_refused(app: FastAPI, admin: Person) -> None:
    maria = await new_person(app, "maria", vision="member")
    await admin.delete("projects/vision")
    assert (await maria.post("training/jobs", json=SPEC)).status_code == 422


@pytest.mark.parametrize(
    ("role", "reach", "status"),
    [
        ("member", {"project": "vision"}, 201),
        ("member", {"project": "vision", "role": "viewer"}, 201),
        ("member", {"role": "member"}, 201),
        ("member", {"project": "vision", "role": "maintainer"}, 422),
        ("member", {"role": "maintainer"}, 422),
        ("member", {"project": "text"}, 422),
        ("member", {"scopes": ["metrics"]}, 403),
        ("member", {"scopes": ["everything"]}, 422),
    ],
)
async def test_token_reaches_no_further_than_its_user(
    app: FastAPI, role: str, reach: dict[str, Any], status: int
) -> None:
    maria = await new_person(app, "maria", vision=role)
    reply = await maria.post("auth/tokens", json={"name": "x", **reach})
    assert reply.status_code == status


async def test_narrowed_token_changes_no_credential(app: FastAPI) -> None:
    maria = await new_person(app, "maria", vision="maintainer", text="member")
    program = await maria.token("ci", project="vision", role="viewer")
    assert await roles(program) == {"vision": "viewer"}
    whole = await maria.token("whole")
    ids = {t["name"]: t["id"] for t in (await maria.get("auth/tokens")).json()["items"]}
    sessions = (await maria.get("auth/sessions")).json()["items"]
    for path in ("auth/tokens", "auth/tokens?user=maria"):
        assert [t["name"] for t in (await program.get(path)).json()["items"]] == ["ci"]
    for reply in (
        await program.post("auth/tokens", json={"name": "x"}),
        await program.post("auth/tokens", json={"name": "x", "project": "vision"}),
        await program.post("auth/codes"),
        await program.get("auth/sessions"),
        await program.delete(f"auth/tokens/{ids['whole']}"),
        await program.delete(f"auth/sessions/{sessions[0]['id']}"),
        await program.patch("users/maria", json={"password": "x" * 9}),
    ):
        assert reply.status_code == 403, reply.text
    assert (await whole.get("auth/me")).status_code == 200
    assert (await program.delete(f"auth/tokens/{ids['ci']}")).status_code == 204  # itself
    assert (await program.get("auth/me")).status_code == 401


async def test_narrowed_token_of_admin_is_no_admin(app: FastAPI) -> None:
    program = await first_admin(app).token("ci", role="viewer")
    assert (await program.get("auth/me")).json()["admin"] is False
    assert (await program.post("users", json={"name": "x"})).status_code == 403
