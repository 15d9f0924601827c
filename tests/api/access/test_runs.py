"""Who may log to the runs of a project, and read them, by MLflow's API."""

from typing import Any

import pytest
from support.access.projects import Projects
from support.access.world import FOREIGN, OWN, project_of, user_of

API = "/api/2.0/mlflow"
FILES = "/api/2.0/mlflow-artifacts/artifacts"
LOGGING = (
    ("POST", f"{API}/runs/log-metric", {"key": "a", "value": 1}),
    ("POST", f"{API}/runs/log-parameter", {"key": "a", "value": "1"}),
    ("POST", f"{API}/runs/log-batch", {"tags": [{"key": "a", "value": "1"}]}),
    ("POST", f"{API}/runs/set-tag", {"key": "a", "value": "1"}),
    ("POST", f"{API}/runs/delete-tag", {"key": "a"}),
    ("POST", f"{API}/runs/update", {"status": "RUNNING"}),
    ("PUT", f"{FILES}/0/RUN/artifacts/a.txt", None),
    ("DELETE", f"{FILES}/0/RUN/artifacts/b.txt", None),
)
READING = (
    ("GET", f"{API}/runs/get?run_id=RUN", None),
    ("GET", f"{API}/metrics/get-history?run_id=RUN&metric_key=a", None),
    ("GET", f"{FILES}?path=0/RUN/artifacts", None),
)


@pytest.fixture
async def asker(projects: Projects) -> Any:
    async def ask(who: str, method: str, path: str, body: Any = None, **more: str) -> Any:
        headers = {} if who == "nobody" else dict(projects.header(who))
        return await projects.client.request(method, path, json=body, headers=headers | more)

    return ask


async def _begun(asker: Any, who: str, mark: str) -> str:
    header = {"X-Trainhall-Project": project_of(mark)}
    reply = await asker(who, "POST", f"{API}/runs/create", {"run_name": mark}, **header)
    assert reply.status_code == 200, reply.text
    found: str = reply.json()["run"]["info"]["run_id"]
    return found


async def test_members_log_and_viewers_read(asker: Any) -> None:
    run = await _begun(asker, "colleague", OWN)
    expected = {
        "nobody": (401, 401), "stranger": (404, 404), "viewer": (403, 200), "member": (200, 200),
        "maintainer": (200, 200), "boss": (200, 200),
    }  # fmt: skip
    wrong = []
    for who, statuses in expected.items():
        for calls, status in zip((LOGGING, READING), statuses, strict=True):
            for method, path, body in calls:
                given = None if body is None else {"run_id": run, **body}
                reply = await asker(who, method, path.replace("RUN", run), given)
                if reply.status_code != status:
                    wrong.append((who, method, path, reply.status_code, reply.text))
                if status >= 400:
                    assert reply.json()["error_code"]
                    assert OWN not in reply.text or status == 403
    assert not wrong


async def test_runs_of_other_projects_are_invisible(asker: Any) -> None:
    await _begun(asker, "grower", FOREIGN)
    mine = await _begun(asker, "colleague", OWN)
    for who, status in (("viewer", 403), ("member", 400)):
        header = {"X-Trainhall-Project": project_of(FOREIGN if status == 400 else OWN)}
        reply = await asker(who, "POST", f"{API}/runs/create", {"run_name": "x"}, **header)
        assert reply.status_code == status, reply.text
    made = await asker(
        "grower", "POST", f"{API}/experiments/create", {"name": "secret"},
        **{"X-Trainhall-Project": project_of(FOREIGN)},
    )  # fmt: skip
    group = made.json()["experiment_id"]
    for path in (f"experiments/get?experiment_id={group}",
                 "experiments/get-by-name?experiment_name=secret"):  # fmt: skip
        assert (await asker("member", "GET", f"{API}/{path}")).status_code == 404
    listed = (await asker("member", "GET", f"{API}/experiments/search")).json()["experiments"]
    assert [each["name"] for each in listed] == ["Default"]
    found = await asker("member", "POST", f"{API}/runs/search", {"experiment_ids": ["0", group]})
    assert [run["info"]["run_id"] for run in found.json()["runs"]] == [mine]
    reply = await asker("member", "POST", f"{API}/runs/create", {"experiment_id": group})
    assert reply.status_code == 404


async def test_changes_of_runs_leave_rows(asker: Any, projects: Projects) -> None:
    run = await _begun(asker, "member", OWN)
    await asker("member", "POST", f"{API}/runs/update", {"run_id": run, "status": "FINISHED"})
    await asker("viewer", "POST", f"{API}/runs/set-tag", {"run_id": run, "key": "a"})
    await projects.app.state.coordinator.audit.flush()
    rows = (await asker("boss", "GET", "/api/v1/audit?limit=20")).json()["items"]
    found = [(row["user"], row["action"], row["outcome"]) for row in rows]
    assert (user_of("member"), "run.create", "done") in found
    assert (user_of("member"), "run.update", "done") in found
    assert (user_of("viewer"), "run.log", "forbidden") in found
