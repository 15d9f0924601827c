"""MLflow's REST API 2.0, as far as clients use it while they log to one run: what is asked for is
answered at once."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from trainhall.cluster.agent.tracking.record import Record, Run
from trainhall.cluster.wire.mlflow import (
    API,
    IGNORED,
    MAX_TAG,
    MAX_VALUE,
    NAME_TAG,
    PARENT_TAG,
    STATUSES,
    ApiError,
    Json,
    experiment_view,
    metric_view,
    now_ms,
    read_integer,
    read_list,
    read_pair,
    read_pairs,
    read_point,
    read_text,
    refuse_missing,
    refuse_value,
    run_view,
)

EXPERIMENT = "0"
"""Id of the one experiment: the job's."""


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
        if name in IGNORED:
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
        self._experiment = read_text(request.query, "experiment_name")
        return {"experiment": self._experiment_view()}

    def _get_experiment(self, request: Request) -> Json:
        found = read_text(request.query, "experiment_id")
        if found != EXPERIMENT:
            refuse_missing(f"there is no experiment {found!r}; the job's has the id {EXPERIMENT!r}")
        return {"experiment": self._experiment_view()}

    def _create_experiment(self, request: Request) -> Json:
        self._experiment = read_text(request.body, "name")
        return {"experiment_id": EXPERIMENT}

    def _search_experiments(self, request: Request) -> Json:
        return {"experiments": [self._experiment_view()]}

    def _experiment_view(self) -> Json:
        return experiment_view(EXPERIMENT, self._experiment)

    # -- runs -----------------------------------------------------------------------------------

    def _create_run(self, request: Request) -> Json:
        """Return the job's run: what a client begins within a job is the job. A nested run is one
        of its own, whose names begin with its name."""
        tags = read_pairs(request.body, "tags", MAX_TAG)
        run = self._record.run
        if tags.get(PARENT_TAG):
            name = str(request.body.get("run_name") or tags.get(NAME_TAG) or "")
            run = self._record.nest(name, now_ms())
        run.status, run.end = "RUNNING", None
        self._record.describe(run, {}, tags)
        return {"run": self._view(run)}

    def _update_run(self, request: Request) -> Json:
        run = self._run(request)
        status = request.body.get("status", run.status)
        if status not in STATUSES:
            refuse_value("status", status, f"one of {', '.join(STATUSES)}")
        run.status = status
        end = request.body.get("end_time")
        run.end = read_integer(request.body, "end_time") if end is not None else None
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
            refuse_missing(
                f"there is no run {run_id!r} in this job; its own is {self._record.run.id} "
                "(MLFLOW_RUN_ID)"
            )
        return found

    def _view(self, run: Run) -> Json:
        return run_view(
            run.id,
            name=run.name,
            experiment_id=EXPERIMENT,
            status=run.status,
            start=run.start,
            end=run.end,
            metrics=self._record.last(run.prefix),
            parameters=run.parameters,
            tags=run.tags,
        )

    # -- what is logged -------------------------------------------------------------------------

    def _log_metric(self, request: Request) -> Json:
        run = self._run(request)
        self._record.log(request.rank, [read_point(request.body, run.prefix)])
        return {}

    def _log_parameter(self, request: Request) -> Json:
        run = self._run(request)
        self._record.describe(run, dict([read_pair(request.body, MAX_VALUE)]), {})
        return {}

    def _set_tag(self, request: Request) -> Json:
        run = self._run(request)
        self._record.describe(run, {}, dict([read_pair(request.body, MAX_TAG)]))
        return {}

    def _delete_tag(self, request: Request) -> Json:
        self._record.forget_tag(self._run(request), read_text(request.body, "key"))
        return {}

    def _log_batch(self, request: Request) -> Json:
        run = self._run(request)
        points = [read_point(metric, run.prefix) for metric in read_list(request.body, "metrics")]
        parameters = read_pairs(request.body, "params", MAX_VALUE)
        tags = read_pairs(request.body, "tags", MAX_TAG)
        if points:
            self._record.log(request.rank, points)
        self._record.describe(run, parameters, tags)
        return {}

    def _history(self, request: Request) -> Json:
        run = self._run(request)
        name = read_text(request.query, "metric_key")
        points = self._record.history(run.prefix + name)
        return {"metrics": [{**metric_view(point), "key": name} for point in points]}
