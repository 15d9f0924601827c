"""MLflow's REST API for programs that run elsewhere (`cluster.runs.mlflow_api`). Its contract is
MLflow's, so it is not part of the public document.

Errors are problem details, as everywhere, with MLflow's `error_code` and `message` beside them.
"""

import asyncio
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from trainhall.api.bodies import read_body, uploaded
from trainhall.api.context import coordinator_of
from trainhall.api.downloads import files
from trainhall.api.limits import TURN_SECONDS, caller_of, limits_of
from trainhall.api.login.authentication import MLFLOW_PREFIXES, get_principal
from trainhall.api.login.refusals import note_refusal
from trainhall.api.login.services import LimitedServices
from trainhall.api.problems import RefusalError, refusal_of
from trainhall.cluster.errors import NotFoundError
from trainhall.cluster.runs.artifacts import output_name
from trainhall.cluster.runs.groups import PROJECT_HEADER
from trainhall.cluster.runs.mlflow_api import Call, MlflowApi, is_run_id
from trainhall.cluster.wire.mlflow import ARTIFACTS, MAX_BODY, ApiError

PREFIX, NEWER = MLFLOW_PREFIXES
_FILES = ARTIFACTS[0]


async def call_mlflow(request: Request) -> Response:
    """Answer one call about experiments and runs."""
    try:
        services = await _services(request)
        api = MlflowApi(services.runs, services.jobs)
        return _json(await api.answer(await _call(request)))
    except Exception as error:
        return _refused(request, error)


async def read_artifacts(request: Request) -> Response:
    """List the artifacts in a folder of a run, or download one."""
    try:
        services = await _services(request)
        path = request.path_params.get("path", "")
        if not path:
            run_id, rest = _place(request.query_params.get("path", ""))
            return _json({"files": await services.run_artifacts.entries(run_id, rest)})
        run_id, rest = _place(path)
        output, content = await services.outputs.find(run_id, output_name(rest))
        try:
            opened = await asyncio.to_thread(content.open, "rb", buffering=0)
        except FileNotFoundError:  # it was replaced or deleted just now
            raise NotFoundError("artifact", rest[:160]) from None
        return files.HashedFileResponse(opened, rest.rpartition("/")[2], output.sha256)
    except Exception as error:
        return _refused(request, error)


async def store_artifact(request: Request) -> Response:
    """Store an artifact of a run, as it comes."""
    try:
        services = await _services(request)
        run_id, rest = _place(request.path_params["path"])
        chunks = uploaded(request, services.unlimited.options.output_file_bytes)
        async with limits_of(request).uploads.turn(caller_of(request), TURN_SECONDS):
            await services.run_artifacts.store(run_id, rest, chunks)
        return _json({})
    except Exception as error:
        return _refused(request, error)


async def delete_artifact(request: Request) -> Response:
    """Delete an artifact of a run, or a folder of them."""
    try:
        services = await _services(request)
        run_id, rest = _place(request.path_params["path"])
        if not rest:
            raise ApiError(400, "INVALID_PARAMETER_VALUE", "the path must be that of an artifact")
        await services.run_artifacts.remove(run_id, rest)
        return _json({})
    except Exception as error:
        return _refused(request, error)


ROUTES = [
    Route(f"{PREFIX}/{{name:path}}", call_mlflow, methods=["GET", "POST", "PATCH", "DELETE"]),
    Route(f"{NEWER}/{{name:path}}", call_mlflow, methods=["GET", "POST", "PATCH", "DELETE"]),
    Route(_FILES, read_artifacts, methods=["GET"]),
    Route(f"{_FILES}/{{path:path}}", read_artifacts, methods=["GET"]),
    Route(f"{_FILES}/{{path:path}}", store_artifact, methods=["PUT"]),
    Route(f"{_FILES}/{{path:path}}", delete_artifact, methods=["DELETE"]),
]


async def _services(request: Request) -> LimitedServices:
    return LimitedServices(coordinator_of(request), await get_principal(request))


async def _call(request: Request) -> Call:
    name = request.path_params["name"]
    if request.url.path.startswith(NEWER):
        name = f"3.0/{name}"  # none of them is served
    raw = await read_body(request, MAX_BODY)
    body: Any = {}
    if raw:
        try:
            body = orjson.loads(raw)
        except ValueError as error:
            raise ApiError(400, "BAD_REQUEST", f"the body is not JSON: {error}") from None
        if not isinstance(body, dict):
            raise ApiError(400, "BAD_REQUEST", "the body must be a JSON object")
    project = request.headers.get(PROJECT_HEADER)
    return Call(name, request.method, request.query_params, body, project or None)


def _place(path: str) -> tuple[str, str]:
    """Return run and path of `EXPERIMENT/RUN/artifacts/PATH`."""
    parts = [part for part in path.split("/") if part]
    if len(parts) < 3 or parts[2] != "artifacts" or not is_run_id(parts[1]):
        detail = f"{path[:160]!r} is no artifact; they begin with EXPERIMENT/RUN/artifacts/"
        raise ApiError(404, "RESOURCE_DOES_NOT_EXIST", detail)
    return parts[1], "/".join(parts[3:])


def _json(content: dict[str, Any]) -> Response:
    # NaN and infinities are text in MLflow's JSON.
    return Response(orjson.dumps(content), media_type="application/json")


def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, ApiError):
        kinds = {404: "not-found", 405: "method-not-allowed", 413: "too-large"}
        kind = kinds.get(error.status, "bad-request")
        return RefusalError(error.status, kind, str(error)).for_mlflow(error.code)
    refusal = refusal_of(error)
    if refusal is None:
        raise error
    note_refusal(request, refusal, error)
    return refusal.for_mlflow()
