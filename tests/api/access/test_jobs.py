"""What the answers about jobs say of other projects, beside their status: nothing."""

from typing import Any

from support.access.projects import Projects
from support.access.world import FOREIGN, OWN, spec_of
from support.archives import archive

CODE = "/training/code"


async def test_commands_are_the_readers(projects: Projects) -> None:
    things = await projects.world.add(OWN, "member")
    path = f"/training/jobs/{things.job}"

    async def allowed(who: str) -> set[str]:
        job = (await projects.ask(who, "GET", path)).json()
        assert {*job["allowed_commands"]}.isdisjoint(job["refused_commands"])
        return set(job["allowed_commands"])

    everything = {"resume", "resize", "cancel", "restore"}
    assert await allowed("viewer") == await allowed("colleague") == set()
    for who in ("member", "maintainer", "boss"):
        assert await allowed(who) == everything
    job = (await projects.ask("colleague", "GET", path)).json()
    assert job["refused_commands"]["cancel"] == (
        f"To change jobs of others in project {things.project} takes the role maintainer; you have "
        f"member; a maintainer of {things.project} or an admin can give it."
    )
    listed = (await projects.ask("viewer", "GET", f"/checkpoints/jobs/{things.job}")).json()
    assert set(listed["items"][0]["refused_commands"]) == {"restore", "pin", "unpin", "delete"}


ASKED = [
    {"query": f"parameters.{OWN}_rat>0"},
    {"query": f"{OWN}_rat>0"},
    {"query": f"{OWN}_rate>0"},
    {"query": f"metrics.{OWN}_los>0"},
    {"query": f"{OWN}_loss.max>0"},
    {"query": f"experiment:{OWN}"},
    {"query": f"name:{OWN}"},
    {"query": "user:me -user:me"},
    {"search": OWN},
    {"sort": f"{OWN}_los"},
    {"sort": f"-metrics.{OWN}_loss.max"},
]


async def test_hints_name_nothing_of_other_projects(projects: Projects) -> None:
    own = await projects.world.add(OWN, "colleague", experiment=True)
    for asked in ASKED:
        given = next(iter(asked.values()))
        answer = await projects.ask("stranger", "GET", "/training/jobs", params=asked)
        for name in (f"{OWN}_rate", f"{OWN}_loss", f"{OWN}-experiment"):
            assert name in given or name not in answer.text, asked
        if answer.status_code == 200:
            listed = {job["id"] for job in answer.json()["items"]}
            assert listed <= projects.world.ids[FOREIGN], asked
    asked = {"query": f"id:{own.job} {OWN}_rate>0"}
    known = await projects.ask("viewer", "GET", "/training/jobs", params=asked)
    assert [job["id"] for job in known.json()["items"]] == [own.job]


async def test_cursor_of_another_user_shows_own_jobs(projects: Projects) -> None:
    pages = {
        who: (await projects.ask(who, "GET", "/training/jobs", params={"limit": 1})).json()
        for who in ("viewer", "stranger")
    }
    for who, other in (("viewer", "stranger"), ("stranger", "viewer")):
        cursor = pages[other]["next_cursor"]
        found = await projects.ask(who, "GET", "/training/jobs", params={"cursor": cursor})
        mark = OWN if who == "viewer" else FOREIGN
        assert {job["id"] for job in found.json()["items"]} <= projects.world.ids[mark]


async def test_idempotency_keys_are_each_users_own(projects: Projects) -> None:
    async def submit(who: str, mark: str, **more: Any) -> Any:
        return await projects.ask(
            who, "POST", "/training/jobs", json={**spec_of(mark), **more},
            headers={"Idempotency-Key": "nightly"},
        )  # fmt: skip

    first, other = await submit("member", OWN), await submit("stranger", FOREIGN)
    assert first.status_code == other.status_code == 201
    assert first.json()["id"] != other.json()["id"]
    taken = await submit("stranger", FOREIGN, priority=1)
    assert taken.status_code == 409
    assert OWN not in taken.text
    assert first.json()["id"] not in taken.text


async def test_hash_of_code_opens_nothing(projects: Projects) -> None:
    digest, data = archive(**{"train.py": "print('secret')"})
    spec = {**spec_of(FOREIGN), "code": digest, "script": {"path": "train.py"}}
    jobs = "/training/jobs"

    async def upload(who: str) -> int:
        return (await projects.ask(who, "PUT", f"{CODE}/{digest}", content=data)).status_code

    assert await upload("member") == 201
    assert (await projects.ask("member", "GET", f"{CODE}/{digest}")).status_code == 200
    assert (await projects.ask("stranger", "GET", f"{CODE}/{digest}")).status_code == 404
    plan = await projects.ask("stranger", "POST", jobs, params={"dry_run": True}, json=spec)
    assert plan.json()["code_missing"] is True
    refused = await projects.ask("stranger", "POST", jobs, json=spec)
    assert refused.status_code == 422
    assert "no code with this SHA-256 was uploaded" in refused.text
    wrong = await projects.ask("stranger", "PUT", f"{CODE}/{digest}", content=data[:-1])
    assert wrong.status_code == 422, "what is there already is received and checked all the same"
    assert await upload("stranger") == 201
    assert await upload("stranger") == 200
    assert (await projects.ask("stranger", "POST", jobs, json=spec)).status_code == 201


async def test_code_of_a_job_serves_its_project(projects: Projects) -> None:
    """Whoever may submit there submits the same job again, whoever uploaded its code."""
    things = await projects.world.add(OWN, "colleague")
    job = (await projects.ask("member", "GET", f"/training/jobs/{things.job}")).json()
    again = await projects.ask("member", "POST", "/training/jobs", json=job["spec"])
    assert again.status_code == 201
    assert again.json()["spec"]["code"] == things.code
    assert again.json()["spec"]["user"] == f"{OWN}-member"
