"""What MLflow's clients send within a job: kept once, answered at once, refused with a reason."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from support.cluster.attempts import read_tables

from trainhall.cluster.agent.tracking.mlflow_api import MlflowApi, Request
from trainhall.cluster.agent.tracking.record import MAX_NAMES, Record, Run
from trainhall.cluster.wire.mlflow import ApiError
from trainhall.training.link.folder import AttemptFolder, Writer

WRITER = Writer(0, 1)
RETRIED = {408, 425, 429, 500, 502, 503, 504}
"""Statuses after which MLflow's client waits, for minutes in all."""


class Client:
    """A client's requests to an attempt's record."""

    def __init__(self, path: Path) -> None:
        self.folder = AttemptFolder(path)
        (path / "tracking").mkdir(exist_ok=True)
        self.restart()

    def restart(self) -> None:
        """Serve from what the files have."""
        self.record = Record(self.folder, WRITER, Run("job", "digits", "", start=1))
        self.api = MlflowApi(self.record, "digits")

    def post(self, name: str, rank: int = 0, /, **body: Any) -> Any:
        return self.api.answer(Request("POST", f"/api/2.0/mlflow/{name}", {}, body, rank))

    def get(self, name: str, **query: str) -> Any:
        return self.api.answer(Request("GET", f"/api/2.0/mlflow/{name}", query, {}, 0))

    def metric(self, key: str, value: Any, step: int, run: str = "job", rank: int = 0) -> None:
        self.post(
            "runs/log-metric", rank, run_id=run, key=key, value=value, step=step, timestamp=5000
        )

    def points(self) -> list[tuple[int | None, str, int, float]]:
        """Points that are shipped."""
        tables = read_tables(self.folder.tracked_metrics(WRITER).read_bytes())
        return [
            (rank, name, step, value)
            for rank, columns in tables
            for name, points in columns.items()
            for step, value in points
        ]

    def events(self) -> list[dict[str, Any]]:
        path = self.folder.tracked_events(WRITER)
        return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(tmp_path)


def test_metrics_are_stored_once(client: Client) -> None:
    for _ in range(2):  # the first answer was lost
        client.metric("train/loss", 0.5, 3)
        client.metric("nan", "NaN", 3)
    client.metric("train/loss", 0.5, 4)
    batch = [{"key": k, "value": 1, "step": "7", "timestamp": "6000"} for k in ("a", "b")]
    client.post("runs/log-batch", run_id="job", metrics=batch)
    client.metric("train/loss", 9.0, 4, rank=2)
    found = client.points()
    assert [point[:3] for point in found] == [
        (None, "train/loss", 3),
        (None, "nan", 3),
        (None, "train/loss", 4),
        (None, "a", 7),
        (None, "b", 7),
        (2, "train/loss", 4),
    ]
    assert found[0][3] == 0.5
    assert math.isnan(found[1][3])


def test_reads_answer_what_was_logged(client: Client) -> None:
    client.metric("loss", 2.0, 2)
    client.metric("loss", 3.0, 1)
    client.metric("bad", "Infinity", 1)
    params = [{"key": "lr", "value": "0.1"}]
    tags = [{"key": "team", "value": "a"}]
    client.post("runs/log-batch", run_id="job", params=params, tags=tags)
    for _ in range(2):
        run = client.get("runs/get", run_id="job")["run"]
        assert run["info"]["run_id"] == "job"
        assert run["data"]["params"] == params
        assert tags[0] in run["data"]["tags"]
        last = {each["key"]: each["value"] for each in run["data"]["metrics"]}
        assert last == {"loss": 2.0, "bad": "Infinity"}
        history = client.get("metrics/get-history", run_id="job", metric_key="loss")["metrics"]
        assert [(p["step"], p["value"], p["timestamp"]) for p in history] == [
            (2, 2.0, 5000),
            (1, 3.0, 5000),
        ]
        client.restart()
    # Another process continues the numbers of the first.
    client.metric("loss", 1.0, 3)
    client.metric("loss", 2.0, 2)
    assert [point[2] for point in client.points()] == [2, 1, 1, 3]


def test_partial_writes_of_killed_server_are_cut(client: Client) -> None:
    client.metric("loss", 1.0, 1)
    client.post("runs/set-tag", run_id="job", key="a", value="b")
    for path in (client.folder.tracked_metrics(WRITER), client.folder.tracked_events(WRITER)):
        with path.open("ab") as file:
            file.write(b"THM1\x05")
    client.restart()
    client.metric("loss", 2.0, 2)
    client.post("runs/delete-tag", run_id="job", key="a")
    assert [point[2] for point in client.points()] == [1, 2]
    assert [event["sequence"] for event in client.events()] == [1, 2]
    assert [event["data"]["tags"] for event in client.events()] == [{"a": "b"}, {"a": None}]


def test_every_run_is_the_jobs(client: Client) -> None:
    client.get("experiments/get-by-name", experiment_name="mine")
    experiment = client.get("experiments/get", experiment_id="0")["experiment"]
    assert experiment["name"] == "mine"
    created = client.post("runs/create", experiment_id="0", run_name="x", tags=[])["run"]
    assert created["info"]["run_id"] == "job"
    client.post("runs/update", run_id="job", status="FINISHED", end_time=9)
    assert client.get("runs/get", run_id="job")["run"]["info"]["status"] == "FINISHED"
    assert client.post("runs/log-inputs", run_id="job", datasets=[]) == {}


def test_nested_runs_have_names_of_their_own(client: Client) -> None:
    tags = [{"key": "mlflow.parentRunId", "value": "job"}]
    ids = [
        client.post("runs/create", run_name="fold 1", tags=tags)["run"]["info"]["run_id"]
        for _ in range(2)
    ]
    assert ids == ["job-fold-1", "job-fold-1-2"]
    client.metric("loss", 1.0, 1)
    client.metric("loss", 2.0, 1, run=ids[0])
    client.post("runs/log-parameter", run_id=ids[0], key="k", value="3")
    assert [point[1] for point in client.points()] == ["loss", "fold-1/loss"]
    assert client.events()[-1]["data"]["parameters"] == {"fold-1/k": "3"}
    for run_id, value in (("job", 1.0), (ids[0], 2.0)):
        metrics = client.get("runs/get", run_id=run_id)["run"]["data"]["metrics"]
        assert [(each["key"], each["value"]) for each in metrics] == [("loss", value)]


@pytest.mark.parametrize("run_id", ["job-..", "job-a/b", "job-", "job-a b"])
def test_odd_ids_are_no_nested_runs(client: Client, run_id: str) -> None:
    with pytest.raises(ApiError, match="there is no run"):
        client.get("runs/get", run_id=run_id)


def test_further_names_are_left_out_and_reported(client: Client) -> None:
    metrics = [
        {"key": f"m{i}", "value": i, "step": 1, "timestamp": 1} for i in range(MAX_NAMES + 2)
    ]
    params = [{"key": f"p{i}", "value": "x"} for i in range(MAX_NAMES + 2)]
    client.post("runs/log-batch", run_id="job", metrics=metrics, params=params)
    assert len(client.points()) == MAX_NAMES
    notes = [event for event in client.events() if event["kind"] == "note"]
    assert [f"m{MAX_NAMES}" in notes[0]["data"]["message"], len(notes)] == [True, 2]


@pytest.mark.parametrize(
    ("name", "body", "status", "says"),
    [
        ("runs/log-metric", {"key": "a", "value": 1}, 404, "its own is job"),
        ("runs/log-metric", {"run_id": "job", "value": 1}, 400, "key must be"),
        ("runs/log-metric", {"run_id": "job", "key": "a"}, 400, "value must be a number"),
        ("runs/log-metric", {"run_id": "job", "key": "a", "value": True}, 400, "value"),
        ("runs/log-metric", {"run_id": "job", "key": "a" * 129, "value": 1}, 400, "128"),
        ("runs/log-metric", {"run_id": "job", "key": "a", "value": 1, "step": -1}, 400, "step"),
        ("runs/log-metric", {"run_id": "job", "key": "a", "value": 1, "step": "x"}, 400, "step"),
        ("runs/log-batch", {"run_id": "job", "metrics": {"a": 1}}, 400, "list of objects"),
        ("runs/log-parameter", {"run_id": "job", "key": "a", "value": "x" * 6001}, 400, "6000"),
        ("runs/update", {"run_id": "job", "status": "DONE"}, 400, "FINISHED"),
        ("registered-models/create", {"name": "m"}, 404, "MLFLOW_TRACKING_URI"),
    ],
)
def test_bad_requests_say_why(
    client: Client, name: str, body: dict[str, Any], status: int, says: str
) -> None:
    with pytest.raises(ApiError, match=says) as refused:
        client.post(name, **body)
    assert refused.value.status == status
    assert status not in RETRIED
    assert not client.folder.tracked_metrics(WRITER).exists()
