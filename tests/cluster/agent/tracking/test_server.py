"""The tracking server over HTTP, as clients talk to it."""

import json
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from trainhall.cluster.agent.tracking.artifacts import Artifacts
from trainhall.cluster.agent.tracking.mlflow_api import MlflowApi
from trainhall.cluster.agent.tracking.record import Record, Run
from trainhall.cluster.agent.tracking.server import Server
from trainhall.training.link.folder import AttemptFolder, Writer

FILES = "/api/2.0/mlflow-artifacts/artifacts"
RIGHT = {"Authorization": "Bearer secret.0"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "tracking").mkdir()
    record = Record(AttemptFolder(tmp_path), Writer(0, 1), Run("job", "digits", "", start=1))
    listener = socket.create_server(("127.0.0.1", 0))
    files = Artifacts(record, tmp_path / "outputs")
    with Server(listener, "secret", MlflowApi(record, "digits"), files) as found:
        thread = threading.Thread(target=found.serve_forever, args=[0.01])
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.fixture
def connection(server: Server) -> Iterator[HTTPConnection]:
    opened = HTTPConnection("127.0.0.1", server.socket.getsockname()[1], timeout=10)
    yield opened
    opened.close()


def ask(
    connection: HTTPConnection, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, bytes]:
    connection.request(method, path, body, {**RIGHT, **headers})
    response = connection.getresponse()
    return response.status, response.read()


def test_only_the_jobs_token_is_accepted(server: Server, connection: HTTPConnection) -> None:
    path = "/api/2.0/mlflow/runs/get?run_id=job"
    for given in ("", "Bearer", "Bearer other.0", "Bearer secret", "Bearer secret.x", "Basic s.0"):
        status, body = ask(connection, "GET", path, Authorization=given)
        assert (status, json.loads(body)["error_code"]) == (401, "UNAUTHENTICATED")
    body = json.dumps({"run_id": "job", "key": "a", "value": 1}).encode()
    status, _ = ask(connection, "POST", "/api/2.0/mlflow/runs/log-metric", body, Authorization="")
    assert status == 401
    assert ask(connection, "PUT", f"{FILES}/0/job/artifacts/a", b"x", Authorization="")[0] == 401
    assert ask(connection, "GET", path)[0] == 200


def test_connection_serves_many_requests(connection: HTTPConnection, tmp_path: Path) -> None:
    connection.connect()
    opened = connection.sock
    for step in range(3):
        metric = {"run_id": "job", "key": "a", "value": step, "step": step, "timestamp": 1}
        for body in (json.dumps(metric).encode(), [json.dumps(metric).encode()]):
            assert ask(connection, "POST", "/api/2.0/mlflow/runs/log-metric", body) == (200, b"{}")
    assert connection.sock is opened
    _, found = ask(connection, "GET", "/api/2.0/mlflow/metrics/get-history?run_id=job&metric_key=a")
    assert [point["step"] for point in json.loads(found)["metrics"]] == [0, 1, 2]


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff"])
def test_damaged_bodies_are_refused(connection: HTTPConnection, body: bytes) -> None:
    status, found = ask(connection, "POST", "/api/2.0/mlflow/runs/log-metric", body)
    assert (status, json.loads(found)["error_code"]) == (400, "BAD_REQUEST")
    status, found = ask(connection, "GET", "/api/3.0/mlflow/server-info")
    assert (status, json.loads(found)["error_code"]) == (404, "ENDPOINT_NOT_FOUND")


def test_artifacts_are_stored_among_outputs(connection: HTTPConnection, tmp_path: Path) -> None:
    for path, body in (("a%20b.txt", b"text"), ("empty", [b""]), ("sub/%C3%BC", [b"x" * 9, b"y"])):
        assert ask(connection, "PUT", f"{FILES}/0/job/artifacts/{path}", body)[0] == 200
    outputs = tmp_path / "outputs"
    assert sorted(str(p.relative_to(outputs)) for p in outputs.rglob("*")) == [
        "a b.txt",
        "empty",
        "sub",
        "sub/ü",
    ]
    assert ask(connection, "GET", f"{FILES}/0/job/artifacts/sub/%C3%BC") == (200, b"x" * 9 + b"y")
    _, found = ask(connection, "GET", f"{FILES}?path=0/job/artifacts")
    assert json.loads(found)["files"] == [
        {"path": "a b.txt", "is_dir": False, "file_size": 4},
        {"path": "empty", "is_dir": False, "file_size": 0},
        {"path": "sub", "is_dir": True},
    ]
    assert ask(connection, "GET", f"{FILES}/0/job/artifacts/gone")[0] == 404


@pytest.mark.parametrize(
    "path",
    ["0/job/artifacts/../../../x", "0/job/artifacts/..%2Fx", "0/other/artifacts/x", "x", "0/job"],
)
def test_artifacts_stay_in_their_folder(
    connection: HTTPConnection, tmp_path: Path, path: str
) -> None:
    assert ask(connection, "PUT", f"{FILES}/{path}", b"x")[0] in (400, 404)
    assert not [found for found in tmp_path.rglob("*") if found.name == "x"]
