"""Who may do what: every route and stream, by role, in the own project and in another one."""

import re
from collections.abc import Callable

from fastapi import FastAPI
from support.access.projects import Projects
from support.access.requests import asked
from support.access.routes import routes_of
from support.access.sockets import OPEN, Socket
from support.access.table import COLUMNS, Row, rows
from support.access.world import FOREIGN, OWN, Things, World, project_of
from support.database import on_sqlite

from trainhall.cluster.api_paths import AGENT_PREFIX

USERS = {"owner": "member", "admin": "boss"}
"""Users of columns that have another name."""
ROLES = ("viewer", "member", "maintainer")
"""Columns of those who ask about another project, too."""
ENTRANCES = {"nobody": (OWN, FOREIGN), "scraper": (OWN, FOREIGN), "stranger": (OWN,), "admin": ()}
"""Marks of the projects that each may learn nothing of; the others: of the foreign one."""


@on_sqlite
def test_table_has_a_row_for_each_route(make_app: Callable[..., FastAPI]) -> None:
    app = make_app()
    documented = {
        (method.upper(), path)
        for path, methods in app.openapi()["paths"].items()
        for method in methods
    }
    sockets = {
        (method, path)
        for method, path in routes_of(list(app.router.routes))
        if method == "WS" and not path.startswith(AGENT_PREFIX)
    }
    listed = [(row.method, row.path) for row in rows()]
    assert len(listed) == len(set(listed))
    assert set(listed) == documented | sockets


class Asker:
    """Asks as each of the users, and collects what was answered wrongly."""

    def __init__(self, projects: Projects) -> None:
        self._projects = projects
        self._world = projects.world
        self._names = iter(range(10_000))
        self.wrong: list[str] = []

    async def ask(self, row: Row, column: str, things: Things, expected: int) -> None:
        """Send a request about some things; note another status, and what it gives away."""
        status, answer = await self._send(row, column, things)
        who = f"{row} as {column} about {things.mark}"
        if status != expected:
            self.wrong.append(f"{who}: {status} instead of {expected}: {answer[-300:]}")
        for mark in ENTRANCES.get(column, (FOREIGN,)):
            # What was asked may come back.
            given = things.params.values() if mark == things.mark else ()
            text = re.sub("|".join([project_of(things.mark), *filter(None, given)]), "", answer)
            for secret in (mark, *self._world.ids[mark]):
                before, found, after = text.partition(secret)
                if found:
                    where = f"{before[-200:]}{found}{after[:200]}"
                    self.wrong.append(f"{who}: {status} gives {secret} away: {where}")

    async def _send(self, row: Row, column: str, things: Things) -> tuple[int, str]:
        """Return the status, and all of the answer as text."""
        more = asked(row.method, row.path, things, f"name-{next(self._names)}")
        path = row.path.format(**{**things.params, **more.params})
        headers = {}
        if column != "nobody":
            headers = self._projects.header(USERS.get(column, column))
        if row.method == "WS":
            async with Socket(self._projects.app, path, headers) as socket:
                return await socket.outcome()
        reply = await self._projects.client.request(
            row.method, path, params=more.query, json=more.json, content=more.content,
            headers=headers,
        )  # fmt: skip
        return reply.status_code, f"{dict(reply.headers)} {reply.text}"


async def test_each_role_gets_what_the_table_says(projects: Projects) -> None:
    world = projects.world
    shared = {
        mark: await world.add(mark, who, experiment=True)
        for mark, who in ((OWN, "colleague"), (FOREIGN, "grower"))
    }
    mine = await world.add(OWN, "member", experiment=True)
    before = await _states(world, shared)
    asker = Asker(projects)
    # What reads comes first: later there is more to read.
    for row in sorted(rows(), key=lambda row: row.method not in ("GET", "WS")):
        for column in COLUMNS:
            things = mine if column == "owner" else shared[OWN]
            if _changes(row, column):
                who = "member" if column == "owner" else "colleague"
                things = await world.add(OWN, who, experiment="{experiment_id}" in row.path)
            await asker.ask(row, column, things, row.statuses[column])
        if _is_about_things(row, mine, shared[FOREIGN]):
            for column in ROLES:
                await asker.ask(row, column, shared[FOREIGN], row.statuses["stranger"])
    assert not asker.wrong, "\n".join(asker.wrong)
    assert await _states(world, shared) == before


def _changes(row: Row, column: str) -> bool:
    """Return whether things that are asked about are another's afterwards."""
    return row.method not in ("GET", "WS") and "{" in row.path and row.statuses[column] < 400


def _is_about_things(row: Row, some: Things, others: Things) -> bool:
    if "{" in row.path:
        return "{node_id}" not in row.path
    return asked(row.method, row.path, some, "x") != asked(row.method, row.path, others, "x")


async def _states(world: World, shared: dict[str, Things]) -> list[object]:
    """What a refused command would have changed."""
    coordinator = world.coordinator
    found: list[object] = []
    for things in shared.values():
        job = await coordinator.jobs.get(things.job)
        checkpoint = await coordinator.checkpoints.get(things.checkpoint)
        found += [job.state, job.world_size, job.tags, job.notes, job.archived, checkpoint]
    return found


async def test_marks_are_in_what_members_read(projects: Projects) -> None:
    world = projects.world
    things = await world.add(OWN, "colleague")
    await world.add(FOREIGN, "grower")
    job = f"/training/jobs/{things.job}"
    for path in (
        job, f"{job}/events", f"{job}/logs", f"{job}/logs/download", f"{job}/attempts",
        f"{job}/gradients", "/training/jobs", "/training/jobs/groups?by=tag",
        f"/metrics/jobs/{things.job}", f"/checkpoints/jobs/{things.job}",
        f"/outputs/jobs/{things.job}",
    ):  # fmt: skip
        assert OWN in (await projects.ask("viewer", "GET", path)).text, path
    listed = (await projects.ask("viewer", "GET", "/training/jobs")).json()["items"]
    of_project = await world.coordinator.jobs.list(query=f"project:{things.project}")
    assert [each["id"] for each in listed] == [each.id for each in of_project.items]
    path = f"/api/v1/metrics/stream/{things.job}"
    async with Socket(projects.app, path, projects.header("viewer")) as socket:
        status, text = await socket.outcome()
        while OWN not in text:
            status, text = await socket.outcome()
    assert status == OPEN
