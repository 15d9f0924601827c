"""`kill -9` of the coordinator's process while it starts the trials of a sweep."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.cluster.coordinator_process import coordinator, url_of
from support.waiting import eventually

RUNS = 200
KILLED_AFTER = (0, 30, 90, 150)
"""Started runs that are seen before each kill; what happens meanwhile is another matter."""
SWEEP: dict[str, Any] = {
    "name": "sweep",
    "kind": "sweep",
    "job": {"name": "x", "task": {"name": "digits"}, "parameters": {"a": 0}},
    "space": {"parameters.a": {"range": [1, RUNS], "step": 1}},
    "method": "grid",
    "objective": {"metric": "loss"},
    "parallel": RUNS,
}


def read_all(url: str, path: str) -> list[Any]:
    items, cursor = [], None
    while True:
        params = {"limit": 1000, **({"cursor": cursor} if cursor else {})}
        page = httpx.get(f"{url}/api/v1{path}", params=params, timeout=60).json()
        items += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return items


def has_started(url: str, experiment: str, runs: int) -> bool:
    counts = httpx.get(f"{url}/api/v1/experiments/{experiment}", timeout=60).json()["counts"]
    return RUNS - int(counts.get("pending", 0)) >= runs


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_killed_coordinator_starts_every_trial_once(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    make: Callable[[], str] | None = None
    if kind == "postgres":
        make = request.getfixturevalue("new_postgres")
    database = make() if make is not None else ""
    experiment = ""
    for runs in KILLED_AFTER:
        with coordinator(tmp_path, database=database) as process:
            url = url_of(process)
            if not experiment:
                created = httpx.post(f"{url}/api/v1/experiments", json=SWEEP, timeout=60)
                assert created.status_code == 201, created.text
                experiment = created.json()["id"]
            eventually("some to be started", partial(has_started, url, experiment, runs))
            process.kill()
            process.wait()
    with coordinator(tmp_path, database=database) as process:
        url, path = url_of(process), f"/experiments/{experiment}"
        eventually("all to be started", partial(has_started, url, experiment, RUNS))
        jobs, trials = read_all(url, "/training/jobs"), read_all(url, f"{path}/trials")
    assert sorted(job["experiment"]["trial"] for job in jobs) == list(range(1, RUNS + 1))
    assert {job["id"]: job["spec"]["parameters"] for job in jobs} == {
        trial["job_id"]: {"a": trial["number"]} for trial in trials
    }
