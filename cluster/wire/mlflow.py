"""MLflow's REST API 2.0: how its requests are read and its answers written, on the standard library
alone. Hosts serve it to the processes of a job, and the coordinator to everybody else.

An error of a host never has a status that MLflow's client retries (408, 425, 429, 500, 502, 503,
504): it would wait for minutes, and training with it.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NoReturn

from trainhall.training.link.frames import MetricTable

API = ("/api/2.0/mlflow/", "/ajax-api/2.0/mlflow/")
ARTIFACTS = (
    "/api/2.0/mlflow-artifacts/artifacts",
    "/ajax-api/2.0/mlflow-artifacts/artifacts",
)
MAX_BODY = 8 * 2**20
MAX_NAME = 128
MAX_STEP = 2**62
MAX_KEY = 250
MAX_VALUE = 6000
"""Characters of a parameter's value, as in MLflow."""
MAX_TAG = 8000
NAME_TAG, PARENT_TAG, USER_TAG = "mlflow.runName", "mlflow.parentRunId", "mlflow.user"
STATUSES = ("RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED")
IGNORED = frozenset({"runs/log-inputs", "runs/outputs", "runs/log-model"})
"""Calls that are accepted, and that nothing shows."""

Json = dict[str, Any]


class ApiError(Exception):
    """A request that is refused.

    Args:
        status: of HTTP.
        code: one of MLflow's.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a metric."""

    name: str
    step: int
    timestamp: int
    """Milliseconds since 1970."""
    value: float

    @property
    def identity(self) -> tuple[object, ...]:
        """Return what makes two points the same one. (NaN equals nothing, itself included.)"""
        return self.name, self.step, self.timestamp, repr(self.value)


def experiment_view(experiment_id: str, name: str) -> Json:
    return {
        "experiment_id": experiment_id,
        "name": name,
        "artifact_location": f"mlflow-artifacts:/{experiment_id}",
        "lifecycle_stage": "active",
    }


def run_view(
    run_id: str,
    *,
    name: str,
    experiment_id: str,
    status: str,
    start: int,
    end: int | None,
    metrics: Iterable[Point],
    parameters: Mapping[str, str],
    tags: Mapping[str, str],
    is_deleted: bool = False,
) -> Json:
    """Return a run as clients read it.

    Args:
        start: milliseconds since 1970, as is `end`.
        metrics: the newest point of each.
    """
    info = {
        "run_id": run_id,
        "run_uuid": run_id,
        "run_name": name,
        "experiment_id": experiment_id,
        "user_id": tags.get(USER_TAG, ""),
        "status": status,
        "start_time": start,
        "artifact_uri": f"mlflow-artifacts:/{experiment_id}/{run_id}/artifacts",
        "lifecycle_stage": "deleted" if is_deleted else "active",
    }
    if end is not None:
        info["end_time"] = end
    data = {
        "metrics": [metric_view(point) for point in metrics],
        "params": [{"key": k, "value": v} for k, v in parameters.items()],
        "tags": [{"key": k, "value": v} for k, v in {NAME_TAG: name, **tags}.items()],
    }
    return {"info": info, "data": data}


def metric_view(point: Point) -> Json:
    value: Any = point.value
    if value != value or value in (float("inf"), float("-inf")):
        value = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return {"key": point.name, "value": value, "timestamp": point.timestamp, "step": point.step}


def read_point(metric: Json, prefix: str = "") -> Point:
    name = prefix + read_text(metric, "key")
    if len(name) > MAX_NAME or not name.isprintable():
        refuse_value("key", name, f"1 to {MAX_NAME} printable characters")
    step = read_integer(metric, "step") if metric.get("step") is not None else 0
    if not 0 <= step < MAX_STEP:
        refuse_value("step", step, "0 or above, and below 2^62")
    given = metric.get("value")
    try:
        if isinstance(given, bool) or not isinstance(given, int | float | str):
            raise ValueError
        value = float(given)
    except (ValueError, OverflowError):
        refuse_value("value", given, "a number, or NaN, Infinity or -Infinity")
    given_time = metric.get("timestamp")
    timestamp = read_integer(metric, "timestamp") if given_time is not None else now_ms()
    if not 0 <= timestamp < 2**53:
        refuse_value("timestamp", timestamp, "milliseconds since 1970")
    return Point(name, step, timestamp, value)


def read_pair(values: Json, longest: int) -> tuple[str, str]:
    key, value = read_text(values, "key"), values.get("value", "")
    if len(key) > MAX_KEY or not key.isprintable():
        refuse_value("key", key, f"1 to {MAX_KEY} printable characters")
    if not isinstance(value, str) or len(value) > longest:
        refuse_value("value", value, f"at most {longest} characters")
    return key, value


def read_pairs(values: Json, name: str, longest: int) -> dict[str, str]:
    return dict(read_pair(each, longest) for each in read_list(values, name))


def read_list(values: Json, name: str) -> list[Json]:
    found = values.get(name) or []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        refuse_value(name, found, "a list of objects")
    return found


def read_text(values: Mapping[str, Any], name: str) -> str:
    found = values.get(name)
    if not isinstance(found, str) or not found or "\0" in found:  # Postgres stores no NUL
        refuse_value(name, found, "a string that is not empty, without NUL")
    return found


def read_integer(values: Mapping[str, Any], name: str) -> int:
    found = values.get(name)
    try:
        # 64-bit integers may come as strings, as protobuf writes them.
        if isinstance(found, bool) or not isinstance(found, int | str | float):
            raise ValueError
        return int(found)
    except (ValueError, OverflowError):
        refuse_value(name, found, "an integer")


def now_ms() -> int:
    return int(1000 * time.time())


def refuse_missing(message: str) -> NoReturn:
    raise ApiError(404, "RESOURCE_DOES_NOT_EXIST", message)


def refuse_value(name: str, value: Any, allowed: str) -> NoReturn:
    raise ApiError(
        400, "INVALID_PARAMETER_VALUE", f"{name} must be {allowed}, not {str(value)[:100]!r}"
    )


def tables_of(points: Sequence[Point], rank: int | None) -> Iterator[MetricTable]:
    """Yield points as tables, consecutive ones of the same names together."""
    rows: list[dict[str, Point]] = []
    for point in points:
        row = rows[-1] if rows else {}
        first = next(iter(row.values()), None)
        same = first is not None and (first.step, first.timestamp) == (point.step, point.timestamp)
        if same and point.name not in row:
            row[point.name] = point
        else:
            rows.append({point.name: point})
    alike: list[dict[str, Point]]
    for alike in (list(group) for _, group in groupby(rows, key=list)):
        firsts = [next(iter(row.values())) for row in alike]
        columns: dict[str, Sequence[float]] = {
            name: [row[name].value for row in alike] for name in alike[0]
        }
        yield MetricTable(
            rank, [p.step for p in firsts], [p.timestamp / 1000 for p in firsts], columns
        )
