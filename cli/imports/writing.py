"""Writing runs to the coordinator, by its MLflow API: what it has already is not sent again."""

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from trainhall.cli.base import output as out
from trainhall.cli.base.client import PROJECT_VARIABLE, Client
from trainhall.cli.base.errors import NotFoundError
from trainhall.cli.imports.runs import OldArtifact, OldPoint, OldRun

_BATCH = 1000
_PAIRS = 100
_MAX_NAME, _MAX_KEY, _MAX_VALUE, _MAX_TAG = 128, 250, 6000, 8000
_FILES = "/api/2.0/mlflow-artifacts/artifacts"
_NAME_TAG = "mlflow.runName"
_BLOCK = 1024 * 1024


class Writer:
    """
    Args:
        project: None: the one that jobs get without one.
    """

    def __init__(self, client: Client, project: str | None, *, artifacts: bool) -> None:
        self._client = client
        project = project or os.environ.get(PROJECT_VARIABLE)
        self._headers = {"X-Trainhall-Project": project} if project else {}
        self._wants_artifacts = artifacts
        self._groups: dict[str, str] = {}
        self._runs = self._points = self._files = 0

    def summary(self) -> str:
        return (
            f"{self._runs} runs are imported; {self._points:,} points and {self._files:,} files "
            "are new."
        )

    def add(self, run: OldRun) -> None:
        """Import a run, or what is new of it."""
        # By its tag, a run that was renamed since would get back the name with which it began.
        named = {name: value for name, value in run.tags.items() if name != _NAME_TAG}
        tags = _fitting(run, "tag", named, _MAX_TAG)
        given = {**tags, "trainhall.run_id": run.id}
        group_id = self._group(run.group)
        made = self._post(
            "runs/create", experiment_id=group_id, run_name=run.name, start_time=run.start,
            tags=_pairs(given),
        )["run"]  # fmt: skip
        parameters = _fitting(run, "parameter", run.parameters, _MAX_VALUE)
        for kind, values in (("params", parameters), ("tags", tags)):
            known = {each["key"]: each["value"] for each in made["data"][kind]}
            new = _pairs({k: v for k, v in values.items() if known.get(k) != v})
            for start in range(0, len(new), _PAIRS):
                self._post("runs/log-batch", run_id=run.id, **{kind: new[start : start + _PAIRS]})
        for name, points in run.metrics():
            self._add_points(run, name, points)
        if self._wants_artifacts:
            self._add_artifacts(run, group_id)
        if made["info"]["status"] != run.status:
            # Older than its last change: no client is at work on it any more.
            self._post("runs/update", run_id=run.id, status=run.status, end_time=run.end)
        self._runs += 1

    def _add_points(self, run: OldRun, name: str, points: Sequence[OldPoint]) -> None:
        if len(name) > _MAX_NAME or not name.isprintable():
            out.notice(f"{run.name}: metric {name[:80]!r} is left out: its name is too long")
            return
        stored = self._get("metrics/get-history", run_id=run.id, metric_key=name)["metrics"]
        known = {(int(p["step"]), int(p["timestamp"]), repr(float(p["value"]))) for p in stored}
        new = [p for p in points if (p.step, p.timestamp, repr(p.value)) not in known]
        negative = [point for point in new if point.step < 0 or point.timestamp < 0]
        if negative:
            what = "have steps or times below 0: left out"
            out.notice(f"{run.name}: {len(negative)} points of {name} {what}")
            new = [point for point in new if point.step >= 0 and point.timestamp >= 0]
        for start in range(0, len(new), _BATCH):
            batch = [_metric(name, point) for point in new[start : start + _BATCH]]
            self._post("runs/log-batch", run_id=run.id, metrics=batch)
        self._points += len(new)

    def _add_artifacts(self, run: OldRun, group_id: str) -> None:
        stored = {each["path"]: each["sha256"]
                  for each in self._client.items(f"/outputs/jobs/{run.id}")}  # fmt: skip
        for artifact in run.artifacts():
            if stored.get(f"mlflow/{artifact.path}") != _sha256(artifact):
                path = quote(f"{group_id}/{run.id}/artifacts/{artifact.path}")
                with artifact.open() as file:
                    self._client.send_raw("PUT", f"{_FILES}/{path}", content=file)
                self._files += 1

    def _group(self, name: str) -> str:
        if name not in self._groups:
            try:
                found = self._get("experiments/get-by-name", experiment_name=name)["experiment"]
            except NotFoundError:
                found = self._post("experiments/create", name=name)
            self._groups[name] = found["experiment_id"]
        return self._groups[name]

    def _post(self, call: str, /, **body: Any) -> Any:
        return self._client.send_raw("POST", f"/api/2.0/mlflow/{call}", json=body,
                                     headers=self._headers)  # fmt: skip

    def _get(self, call: str, /, **query: Any) -> Any:
        return self._client.send_raw("GET", f"/api/2.0/mlflow/{call}", params=query,
                                     headers=self._headers)  # fmt: skip


def _fitting(run: OldRun, what: str, values: Mapping[str, str], longest: int) -> dict[str, str]:
    """Return the values that can be stored, with a notice about the others."""
    fitting = {}
    for name, value in values.items():
        if len(name) > _MAX_KEY or not name.isprintable():
            why = f"its name is no text of at most {_MAX_KEY} characters"
        elif len(value) > longest:
            why = f"it has over {longest} characters"
        else:
            fitting[name] = value
            continue
        out.notice(f"{run.name}: {what} {name[:80]!r} is left out: {why}")
    return fitting


def _pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": name, "value": value} for name, value in values.items()]


def _metric(name: str, point: OldPoint) -> dict[str, Any]:
    value: float | str = point.value
    if not math.isfinite(point.value):
        value = "NaN" if math.isnan(point.value) else f"{'-' if point.value < 0 else ''}Infinity"
    return {"key": name, "value": value, "timestamp": point.timestamp, "step": point.step}


def _sha256(artifact: OldArtifact) -> str:
    digest = hashlib.sha256()
    with artifact.open() as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
