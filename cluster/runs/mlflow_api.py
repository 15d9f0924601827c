"""MLflow's REST API 2.0 for programs that run elsewhere: what each call means for runs.

MLflow's experiments are groups of runs here. Errors of services are the caller's to answer with.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from trainhall.cluster.errors import InvalidValueError
from trainhall.cluster.jobs.annotations import Annotation
from trainhall.cluster.jobs.service import JobService
from trainhall.cluster.runs.groups import PROJECT_TAG, Group
from trainhall.cluster.runs.search import Search
from trainhall.cluster.runs.service import LoggedRun, NewRun, RunService
from trainhall.cluster.wire.mlflow import (
    IGNORED,
    MAX_TAG,
    MAX_VALUE,
    NAME_TAG,
    STATUSES,
    ApiError,
    Json,
    experiment_view,
    metric_view,
    read_integer,
    read_list,
    read_pair,
    read_pairs,
    read_point,
    read_text,
    refuse_value,
    run_view,
)
from trainhall.db.sanitize import sanitize_text

ID_TAG = "trainhall.run_id"
"""Tag of a new run with the id that it is to have: an import that is repeated finds it again."""


class Call(NamedTuple):
    """One call of the API.

    Args:
        name: such as `runs/log-metric`.
        project: the one that a header names.
    """

    name: str
    method: str
    query: Mapping[str, str]
    body: Json
    project: str | None = None

    @property
    def values(self) -> Mapping[str, object]:
        return self.query if self.method == "GET" else self.body


class MlflowApi:
    """
    Args:
        runs: limited to the caller, as is `jobs`.
    """

    def __init__(self, runs: RunService, jobs: JobService) -> None:
        self._runs = runs
        self._jobs = jobs

    async def answer(self, call: Call) -> Json:
        """Return the response's body.

        Raises:
            ApiError, ClusterError: the call is refused.
        """
        route = _ROUTES.get(call.name)
        if route is not None:
            if call.method in ("GET", "HEAD") and call.name not in READING:
                # Browsers follow links of other sites with the user's cookie.
                raise ApiError(405, "ENDPOINT_NOT_FOUND", f"{call.name} must be sent by POST")
            return await route(self, call)
        if call.name in IGNORED:
            return {}
        raise ApiError(
            404,
            "ENDPOINT_NOT_FOUND",
            f"{call.name[:80]} is not served: the coordinator keeps experiments, runs and "
            "artifacts; the model registry, traces and logged models need a tracking server of "
            "your own",
        )

    # -- experiments ----------------------------------------------------------------------------

    async def _experiment_by_name(self, call: Call) -> Json:
        name = read_text(call.query, "experiment_name")
        return {"experiment": _view(await self._runs.find_group(name, call.project))}

    async def _get_experiment(self, call: Call) -> Json:
        group = await self._runs.group(read_text(call.query, "experiment_id"))
        return {"experiment": _view(group)}

    async def _create_experiment(self, call: Call) -> Json:
        name, tags = read_text(call.body, "name"), read_pairs(call.body, "tags", MAX_TAG)
        made = await self._runs.add_group(name, _project(call, tags))
        return {"experiment_id": made.id}

    async def _search_experiments(self, call: Call) -> Json:
        if call.values.get("filter"):
            refuse_value("filter", call.values["filter"], "left out: experiments are listed whole")
        return {"experiments": [_view(group) for group in await self._runs.groups()]}

    # -- runs -----------------------------------------------------------------------------------

    async def _create_run(self, call: Call) -> Json:
        tags = read_pairs(call.body, "tags", MAX_TAG)
        given = call.body.get("start_time")
        run_id, name = tags.pop(ID_TAG, None), tags.pop(NAME_TAG, "")
        if run_id is not None and not (is_run_id(run_id) and run_id == run_id.lower()):
            refuse_value(ID_TAG, run_id, "1 to 32 letters and digits, in lower case")
        new = NewRun(
            group_id=str(call.body.get("experiment_id") or "0"),
            name=str(call.body.get("run_name") or name),
            start=None if given is None else read_integer(call.body, "start_time"),
            tags=tags,
            run_id=run_id,
            project=_project(call, tags),
        )
        return {"run": _run_view(await self._runs.create(new))}

    async def _get_run(self, call: Call) -> Json:
        return {"run": _run_view(await self._runs.get(_run_id(call)))}

    async def _update_run(self, call: Call) -> Json:
        status, name = call.body.get("status"), call.body.get("run_name")
        if status is not None and status not in STATUSES:
            refuse_value("status", status, f"one of {', '.join(STATUSES)}")
        end = call.body.get("end_time")
        updated = await self._runs.update(
            _run_id(call),
            status=status,
            end=None if end is None else read_integer(call.body, "end_time"),
            name=name if isinstance(name, str) else None,
        )
        return {"run_info": _run_view(updated)["info"]}

    async def _delete_run(self, call: Call) -> Json:
        return await self._archive(call, archived=True)

    async def _restore_run(self, call: Call) -> Json:
        return await self._archive(call, archived=False)

    async def _archive(self, call: Call, *, archived: bool) -> Json:
        run = await self._runs.get(_run_id(call))
        await self._jobs.annotate(run.id, Annotation(archived=archived))
        return {}

    async def _search_runs(self, call: Call) -> Json:
        ids, orders = call.body.get("experiment_ids") or [], call.body.get("order_by") or []
        for name, values in (("experiment_ids", ids), ("order_by", orders)):
            if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
                refuse_value(name, values, "a list of strings")
        kinds = {"ACTIVE_ONLY": False, "DELETED_ONLY": True, "ALL": None}
        kind = call.body.get("run_view_type") or "ACTIVE_ONLY"
        if not isinstance(kind, str) or kind not in kinds:
            refuse_value("run_view_type", kind, f"one of {', '.join(kinds)}")
        most = call.body.get("max_results")
        asked = Search(
            group_ids=ids,
            filter=str(call.body.get("filter") or ""),
            order_by=orders,
            is_archived=kinds[kind],
            limit=1000 if most is None else read_integer(call.body, "max_results"),
            page_token=str(call.body.get("page_token") or ""),
        )
        found, following = await self._runs.search(asked)
        page = {"runs": [_run_view(run) for run in found]}
        return page if following is None else {**page, "next_page_token": following}

    # -- what is logged -------------------------------------------------------------------------

    async def _log_metric(self, call: Call) -> Json:
        await self._runs.log(_run_id(call), [read_point(call.body)])
        return {}

    async def _log_parameter(self, call: Call) -> Json:
        await self._runs.describe(_run_id(call), dict([read_pair(call.body, MAX_VALUE)]), {})
        return {}

    async def _set_tag(self, call: Call) -> Json:
        await self._runs.describe(_run_id(call), {}, dict([read_pair(call.body, MAX_TAG)]))
        return {}

    async def _delete_tag(self, call: Call) -> Json:
        await self._runs.describe(_run_id(call), {}, {read_text(call.body, "key"): None})
        return {}

    async def _log_batch(self, call: Call) -> Json:
        run_id = _run_id(call)
        points = [read_point(metric) for metric in read_list(call.body, "metrics")]
        parameters = read_pairs(call.body, "params", MAX_VALUE)
        tags = read_pairs(call.body, "tags", MAX_TAG)
        if parameters or tags:
            await self._runs.describe(run_id, parameters, dict(tags))
        await self._runs.log(run_id, points)
        return {}

    async def _history(self, call: Call) -> Json:
        points = await self._runs.history(_run_id(call), read_text(call.query, "metric_key"))
        start = read_integer(call.query, "page_token") if call.query.get("page_token") else 0
        most = len(points)
        if call.query.get("max_results"):
            most = read_integer(call.query, "max_results")
        if start < 0 or most < 0:
            raise InvalidValueError("max_results", most, "must not be negative")
        page: Json = {"metrics": [metric_view(point) for point in points[start : start + most]]}
        if start + most < len(points):
            page["next_page_token"] = str(start + most)
        return page

    async def _no_models(self, call: Call) -> Json:
        """Asked for by what lists a run's artifacts."""
        return {"models": []}


_ROUTES: Mapping[str, Callable[[MlflowApi, Call], Awaitable[Json]]] = {
    "experiments/get-by-name": MlflowApi._experiment_by_name,
    "experiments/get": MlflowApi._get_experiment,
    "experiments/create": MlflowApi._create_experiment,
    "experiments/search": MlflowApi._search_experiments,
    "runs/create": MlflowApi._create_run,
    "runs/get": MlflowApi._get_run,
    "runs/update": MlflowApi._update_run,
    "runs/delete": MlflowApi._delete_run,
    "runs/restore": MlflowApi._restore_run,
    "runs/search": MlflowApi._search_runs,
    "runs/log-metric": MlflowApi._log_metric,
    "runs/log-parameter": MlflowApi._log_parameter,
    "runs/log-batch": MlflowApi._log_batch,
    "runs/set-tag": MlflowApi._set_tag,
    "runs/delete-tag": MlflowApi._delete_tag,
    "metrics/get-history": MlflowApi._history,
    "logged-models/search": MlflowApi._no_models,
}
READING = frozenset({
    "experiments/get-by-name", "experiments/get", "experiments/search", "runs/get", "runs/search",
    "metrics/get-history", "logged-models/search",
})  # fmt: skip


def is_run_id(text: str) -> bool:
    """Return whether a run may have this id."""
    return text.isascii() and text.isalnum() and len(text) <= 32


def _run_id(call: Call) -> str:
    found = call.values.get("run_id") or call.values.get("run_uuid")
    if not isinstance(found, str) or not is_run_id(found):
        refuse_value("run_id", found, "the id of a run")
    return found


def _project(call: Call, tags: Mapping[str, str]) -> str | None:
    """Return the project that a call names."""
    return sanitize_text(tags.get(PROJECT_TAG, "")) or call.project


def _view(group: Group) -> Json:
    shown = experiment_view(group.id, group.name)
    if group.project is not None:
        shown["tags"] = [{"key": PROJECT_TAG, "value": group.project}]
    return shown


def _run_view(run: LoggedRun) -> Json:
    return run_view(
        run.id,
        name=run.name,
        experiment_id=run.group_id,
        status=run.status,
        start=run.start,
        end=run.end,
        metrics=run.metrics,
        parameters=run.parameters,
        tags=run.tags,
        is_deleted=run.is_archived,
    )
