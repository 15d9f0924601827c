"""Reading the runs of a tracking server by MLflow's REST API."""

import functools
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO
from urllib.parse import quote, urlsplit

import httpx

from trainhall.cli.base.errors import CliError, UnreachableError
from trainhall.cli.imports.runs import OldArtifact, OldPoint, OldRun

_API, _FILES = "/api/2.0/mlflow", "/api/2.0/mlflow-artifacts/artifacts"
_PAGE = 1000
_POINTS = 25_000


def read_server(url: str) -> Iterator[OldRun]:
    """Yield the runs of a server, without those that were deleted.

    Raises:
        CliError: it refuses, or is no tracking server.
        UnreachableError: nothing answers.
    """
    with _Server(url) as server:
        asked: dict[str, Any] = {"max_results": _PAGE}
        for experiment in server.pages("experiments/search", "experiments", asked):
            ids = [experiment["experiment_id"]]
            asked = {"experiment_ids": ids, "max_results": _PAGE}
            for run in server.pages("runs/search", "runs", asked):
                yield _run(server, run, experiment["name"])


def _run(server: "_Server", run: dict[str, Any], group: str) -> OldRun:
    info, data = run["info"], run.get("data", {})
    names = [metric["key"] for metric in data.get("metrics", ())]
    tags = {tag["key"]: tag["value"] for tag in data.get("tags", ())}
    return OldRun(
        id=info["run_id"],
        group=group,
        name=info.get("run_name") or tags.get("mlflow.runName") or info["run_id"],
        status=info["status"],
        start=int(info.get("start_time") or 0),
        end=int(info["end_time"]) if info.get("end_time") else None,
        parameters={each["key"]: each["value"] for each in data.get("params", ())},
        tags=tags,
        metrics=functools.partial(server.metrics, info["run_id"], names),
        artifacts=functools.partial(server.artifacts, info.get("artifact_uri", "")),
    )


class _Server:
    def __init__(self, url: str) -> None:
        self._url = url
        token = os.environ.get("MLFLOW_TRACKING_TOKEN")
        user = os.environ.get("MLFLOW_TRACKING_USERNAME")
        password = os.environ.get("MLFLOW_TRACKING_PASSWORD", "")
        self._http = httpx.Client(
            base_url=url.rstrip("/"),
            timeout=60,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            auth=httpx.BasicAuth(user, password) if user and not token else None,
        )

    def __enter__(self) -> "_Server":
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def pages(self, name: str, kind: str, asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
        token = None
        while True:
            body = asked if token is None else {**asked, "page_token": token}
            page = self._ask("POST", f"{_API}/{name}", json=body)
            yield from page.get(kind, ())
            token = page.get("next_page_token")
            if not token:
                return

    def metrics(
        self, run_id: str, names: Sequence[str]
    ) -> Iterator[tuple[str, Sequence[OldPoint]]]:
        for name in names:
            points: list[OldPoint] = []
            asked: dict[str, Any] = {"run_id": run_id, "metric_key": name, "max_results": _POINTS}
            while True:
                page = self._ask("GET", f"{_API}/metrics/get-history", params=asked)
                for point in page.get("metrics", ()):
                    step, time = int(point.get("step") or 0), int(point["timestamp"])
                    points.append(OldPoint(step, time, float(point["value"])))
                if not page.get("next_page_token"):
                    break
                asked = {**asked, "page_token": page["next_page_token"]}
            yield name, points

    def artifacts(self, uri: str, folder: str = "") -> Iterator[OldArtifact]:
        """Yield the artifacts that the server itself keeps; of others it has the address alone."""
        address = urlsplit(uri)  # it may name the server: mlflow-artifacts://HOST/PATH
        if address.scheme != "mlflow-artifacts":
            return
        root = address.path.strip("/")
        listed = self._ask("GET", _FILES, params={"path": f"{root}/{folder}".rstrip("/")})
        for file in listed.get("files", ()):
            path = f"{folder}/{file['path']}".lstrip("/")
            if file["is_dir"]:
                yield from self.artifacts(uri, path)
            else:
                yield OldArtifact(path, functools.partial(self._download, f"{root}/{path}"))

    @contextmanager
    def _download(self, path: str) -> Iterator[BinaryIO]:
        try:
            with (
                tempfile.TemporaryFile() as file,
                self._http.stream("GET", f"{_FILES}/{quote(path)}") as answer,
            ):
                if not answer.is_success:
                    raise CliError(f"{self._url} refuses artifact {path}: {answer.status_code}")
                for piece in answer.iter_bytes():
                    file.write(piece)
                file.seek(0)
                yield file
        except httpx.TransportError as error:
            raise self._unreachable(error) from None

    def _ask(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        try:
            answer = self._http.request(method, path, **options)
            found = answer.json()
        except httpx.TransportError as error:
            raise self._unreachable(error) from None
        except ValueError:
            raise CliError(f"{self._url} is no tracking server: its answer is not JSON") from None
        if not answer.is_success or not isinstance(found, dict):
            why = found.get("message") if isinstance(found, dict) else None
            raise CliError(f"{self._url} refuses {path}: {why or answer.status_code}")
        return found

    def _unreachable(self, error: Exception) -> UnreachableError:
        return UnreachableError(f"no tracking server answers at {self._url} ({error})")
