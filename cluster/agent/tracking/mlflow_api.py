"""MLflow's REST API 2.0, as far as clients use it while they log to one run.

What is asked for is answered at once. An error never has a status that MLflow's client retries
(408, 425, 429, 500, 502, 503, 504): it would wait for minutes, and training with it.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

from trainhall.cluster.agent.tracking.record import Point, Record, Run

API = ("/api/2.0/mlflow/", "/ajax-api/2.0/mlflow/")
EXPERIMENT = "0"
"""Id of the one experiment: the job's."""
MAX_NAME = 128
MAX_STEP = 2**62
MAX_VALUE = 6000
"""Characters of a parameter's value, as in MLflow."""
MAX_TAG = 8000
PARENT_TAG = "mlflow.parentRunId"
_STATUSES = ("RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED")
_IGNORED = frozenset({"log-inputs", "outputs", "log-model"})
"""Calls of a run that are accepted, and that nothing shows."""

Json = dict[str, Any]


class ApiError(Exception):
    """A request that is refused.

    Args:
        status: of HTTP; none that MLflow's client retries.
        code: one of MLflow's.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class Request(NamedTuple):
    """A request whose token has been checked."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Json
    rank: int
    """Rank of the process that sends it."""


class MlflowApi:
    """
    Args:
        experiment: name of the experiment before a client has asked for another one.
    """

    def __init__(self, record: Record, experiment: str) -> None:
        self._record = record
        self._experiment = experiment
        self._routes: dict[str, Callable[[Request], Json]] = {
            "experiments/get-by-name": self._experiment_by_name,
            "experiments/get": self._get_experiment,
            "experiments/create": self._create_experiment,
            "experiments/search": self._search_experiments,
            "runs/create": self._create_run,
            "runs/get": lambda request: {"run": self._view(self._run(request))},
            "runs/update": self._update_run,
            "runs/search": self._search_runs,
            "runs/log-metric": self._log_metric,
            "runs/log-parameter": self._log_parameter,
            "runs/log-batch": self._log_batch,
            "runs/set-tag": self._set_tag,
            "runs/delete-tag": self._delete_tag,
            "metrics/get-history": self._history,
            # Asked for by what lists a run's artifacts.
            "logged-models/search": lambda _: {"models": []},
        }

    def answer(self, request: Request) -> Json:
        """Return the response's body.

        Raises:
            ApiError: the request is refused.
        """
        name = next((request.path[len(p) :] for p in API if request.path.startswith(p)), "")
        route = self._routes.get(name)
        if route is not None:
            return route(request)
        if name.startswith("runs/") and name.removeprefix("runs/") in _IGNORED:
            return {}
        raise ApiError(
            404,
            "ENDPOINT_NOT_FOUND",
            f"{request.path} is not served in a job: it has one experiment and one run; the model "
            "registry, traces and logged models need a tracking server of your own (set "
            "MLFLOW_TRACKING_URI in the script's env)",
        )

    # -- the experiment: whatever it is called, there is one ------------------------------------

    def _experiment_by_name(self, request: Request) -> Json:
        self._experiment = _text(request.query, "experiment_name")
        return {"experiment": self._experiment_view()}

    def _get_experiment(self, request: Request) -> Json:
        found = _text(request.query, "experiment_id")
        if found != EXPERIMENT:
            _missing(f"there is no experiment {found!r}; the job's has the id {EXPERIMENT!r}")
        return {"experiment": self._experiment_view()}

    def _create_experiment(self, request: Request) -> Json:
        self._experiment = _text(request.body, "name")
        return {"experiment_id": EXPERIMENT}

    def _search_experiments(self, request: Request) -> Json:
        return {"experiments": [self._experiment_view()]}

    def _experiment_view(self) -> Json:
        return {
            "experiment_id": EXPERIMENT,
            "name": self._experiment,
            "artifact_location": f"mlflow-artifacts:/{EXPERIMENT}",
            "lifecycle_stage": "active",
        }

    # -- runs -----------------------------------------------------------------------------------

    def _create_run(self, request: Request) -> Json:
        """Return the job's run: what a client begins within a job is the job. A nested run is one
        of its own, whose names begin with its name."""
        tags = _pairs(request.body, "tags", MAX_TAG)
        run = self._record.run
        if tags.get(PARENT_TAG):
            name = str(request.body.get("run_name") or tags.get("mlflow.runName") or "")
            run = self._record.nest(name, _now())
        run.status, run.end = "RUNNING", None
        self._record.describe(run, {}, tags)
        return {"run": self._view(run)}

    def _update_run(self, request: Request) -> Json:
        run = self._run(request)
        status = request.body.get("status", run.status)
        if status not in _STATUSES:
            _invalid("status", status, f"one of {', '.join(_STATUSES)}")
        run.status = status
        end = request.body.get("end_time")
        run.end = _integer(request.body, "end_time") if end is not None else None
        name = request.body.get("run_name")
        if isinstance(name, str) and name:
            run.name = name
        return {"run_info": self._view(run)["info"]}

    def _search_runs(self, request: Request) -> Json:
        return {"runs": [self._view(run) for run in self._record.runs()]}

    def _run(self, request: Request) -> Run:
        values = request.body if request.method == "POST" else request.query
        run_id = str(values.get("run_id") or values.get("run_uuid") or "")
        found = self._record.find(run_id)
        if found is None:
            _missing(
                f"there is no run {run_id!r} in this job; its own is {self._record.run.id} "
                "(MLFLOW_RUN_ID)"
            )
        return found

    def _view(self, run: Run) -> Json:
        info = {
            "run_id": run.id,
            "run_uuid": run.id,
            "run_name": run.name,
            "experiment_id": EXPERIMENT,
            "user_id": run.tags.get("mlflow.user", ""),
            "status": run.status,
            "start_time": run.start,
            "artifact_uri": f"mlflow-artifacts:/{EXPERIMENT}/{run.id}/artifacts",
            "lifecycle_stage": "active",
        }
        if run.end is not None:
            info["end_time"] = run.end
        tags = {"mlflow.runName": run.name, **run.tags}
        data = {
            "metrics": [_metric_view(point) for point in self._record.last(run.prefix)],
            "params": [{"key": k, "value": v} for k, v in run.parameters.items()],
            "tags": [{"key": k, "value": v} for k, v in tags.items()],
        }
        return {"info": info, "data": data}

    # -- what is logged -------------------------------------------------------------------------

    def _log_metric(self, request: Request) -> Json:
        run = self._run(request)
        self._record.log(request.rank, [_point(run, request.body)])
        return {}

    def _log_parameter(self, request: Request) -> Json:
        run = self._run(request)
        self._record.describe(run, dict([_pair(request.body, MAX_VALUE)]), {})
        return {}

    def _set_tag(self, request: Request) -> Json:
        run = self._run(request)
        self._record.describe(run, {}, dict([_pair(request.body, MAX_TAG)]))
        return {}

    def _delete_tag(self, request: Request) -> Json:
        self._record.forget_tag(self._run(request), _text(request.body, "key"))
        return {}

    def _log_batch(self, request: Request) -> Json:
        run = self._run(request)
        points = [_point(run, metric) for metric in _list(request.body, "metrics")]
        parameters = _pairs(request.body, "params", MAX_VALUE)
        tags = _pairs(request.body, "tags", MAX_TAG)
        if points:
            self._record.log(request.rank, points)
        self._record.describe(run, parameters, tags)
        return {}

    def _history(self, request: Request) -> Json:
        run = self._run(request)
        name = _text(request.query, "metric_key")
        points = self._record.history(run.prefix + name)
        return {"metrics": [{**_metric_view(point), "key": name} for point in points]}


def _metric_view(point: Point) -> Json:
    value: Any = point.value
    if value != value or value in (float("inf"), float("-inf")):
        value = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return {"key": point.name, "value": value, "timestamp": point.timestamp, "step": point.step}


def _point(run: Run, metric: Json) -> Point:
    name = run.prefix + _text(metric, "key")
    if len(name) > MAX_NAME or not name.isprintable():
        _invalid("key", name, f"1 to {MAX_NAME} printable characters")
    step = _integer(metric, "step") if metric.get("step") is not None else 0
    if not 0 <= step < MAX_STEP:
        _invalid("step", step, "0 or above, and below 2^62")
    given = metric.get("value")
    try:
        if isinstance(given, bool) or not isinstance(given, int | float | str):
            raise ValueError
        value = float(given)
    except (ValueError, OverflowError):
        _invalid("value", given, "a number, or NaN, Infinity or -Infinity")
    timestamp = _integer(metric, "timestamp") if metric.get("timestamp") is not None else _now()
    if not 0 <= timestamp < 2**53:
        _invalid("timestamp", timestamp, "milliseconds since 1970")
    return Point(name, step, timestamp, value)


def _pair(values: Json, longest: int) -> tuple[str, str]:
    key, value = _text(values, "key"), values.get("value", "")
    if len(key) > 250 or not key.isprintable():
        _invalid("key", key, "1 to 250 printable characters")
    if not isinstance(value, str) or len(value) > longest:
        _invalid("value", value, f"at most {longest} characters")
    return key, value


def _pairs(values: Json, name: str, longest: int) -> dict[str, str]:
    return dict(_pair(each, longest) for each in _list(values, name))


def _list(values: Json, name: str) -> list[Json]:
    found = values.get(name) or []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        _invalid(name, found, "a list of objects")
    return found


def _text(values: Mapping[str, Any], name: str) -> str:
    found = values.get(name)
    if not isinstance(found, str) or not found:
        _invalid(name, found, "a string that is not empty")
    return found


def _integer(values: Mapping[str, Any], name: str) -> int:
    found = values.get(name)
    try:
        # 64-bit integers may come as strings, as protobuf writes them.
        if isinstance(found, bool) or not isinstance(found, int | str | float):
            raise ValueError
        return int(found)
    except (ValueError, OverflowError):
        _invalid(name, found, "an integer")


def _now() -> int:
    return int(1000 * time.time())


def _missing(message: str) -> NoReturn:
    raise ApiError(404, "RESOURCE_DOES_NOT_EXIST", message)


def _invalid(name: str, value: Any, allowed: str) -> NoReturn:
    raise ApiError(
        400, "INVALID_PARAMETER_VALUE", f"{name} must be {allowed}, not {str(value)[:100]!r}"
    )
