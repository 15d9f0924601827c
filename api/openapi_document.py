"""The OpenAPI document, and the public routes that it describes.

python -m trainhall.api.openapi_document > openapi.json      prints it, without a server
"""

import sys
from functools import cache
from typing import Any

import orjson
from fastapi import APIRouter, Depends, FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema
from starlette.routing import BaseRoute

from trainhall import __version__
from trainhall.api.openapi.describe import REF
from trainhall.api.openapi.examples import add_examples
from trainhall.api.params import known_query
from trainhall.api.routes import (
    alerts,
    audit,
    auth,
    checkpoints,
    cluster,
    code,
    experiments,
    gradients,
    jobs,
    ledger,
    metrics,
    outputs,
    reports,
    views,
)
from trainhall.api.routes.login import commands
from trainhall.api.routes.people import groups, projects, secrets, users
from trainhall.api.routes.site import probes
from trainhall.api.routes.tunnels import ports, profiles, stacks
from trainhall.api.schemas.accounts import (
    Login,
    LoginCode,
    NewGroup,
    NewLink,
    NewProject,
    NewRole,
    NewSecret,
    NewToken,
    NewUser,
    ProjectChange,
    UserChange,
)
from trainhall.api.schemas.alerts import AlertChange, NewAlert
from trainhall.api.schemas.jobs import Changes, JobEdit, NewProfile, NewView, Resize
from trainhall.api.schemas.logins import (
    BrowserCode,
    DeviceCode,
    DeviceDecision,
    NewBrowserLogin,
    NewDeviceLogin,
)
from trainhall.api.schemas.nodes import Drain, NewNode, NodeChange
from trainhall.api.schemas.problems import Problem
from trainhall.api.schemas.reports import NewReport, ReportChange
from trainhall.api.schemas.what_if import Question
from trainhall.cluster.api_paths import API_PREFIX
from trainhall.cluster.experiments.spec import ExperimentSpec
from trainhall.training.spec import JobSpec

TITLE = "Trainhall"
PUBLIC_ROUTERS = (
    jobs.router, gradients.router, code.router, code.jobs_router, cluster.router, metrics.router,
    checkpoints.router, outputs.router, experiments.router, alerts.router, views.router,
    ledger.router, reports.router, auth.router, commands.router, audit.router, users.router,
    groups.router, projects.router, secrets.router, stacks.router, profiles.router,
    ports.router,
)  # fmt: skip
_DESCRIPTION = """\
A self-hosted system for distributed training.

Requests need a credential: an API token as `Authorization: Bearer TOKEN`, or the cookie of a
browser that is logged in. `/healthz`, `/readyz` and the login need none.

Errors are returned as RFC 9457 problem details (`application/problem+json`); `errors` names each
wrong field. Lists are paginated: pass `next_cursor` as `cursor` to get the next page. Times are
RFC 3339 in UTC, memory is in bytes, power in watts, utilization from 0 to 100.

A job's frames are streamed over a websocket, `/api/v1/metrics/stream/{job_id}?after=SEQ`, one JSON
object `{seq, type, …}` a message; an unknown job is accepted and then closed with code 4404.
Notifications of browsers are streamed at `/api/v1/alerts/stream?after=SEQUENCE`. Commands and ports
beside running jobs are websockets, too (docs/inside.md): `/api/v1/training/jobs/{job_id}/exec` and
`/api/v1/training/jobs/{job_id}/forward/{port}`.
"""
_TAGS = [
    {"name": "jobs", "description": "Jobs and their life cycle."},
    {
        "name": "experiments",
        "description": "Jobs that differ in some values.",
    },
    {"name": "alerts", "description": "Messages about jobs and nodes, to people and programs."},
    {"name": "reports", "description": "Markdown with live charts, written by users."},
    {"name": "cluster", "description": "Nodes, their devices, and the queue."},
    {"name": "metrics", "description": "Metric series and a summary of the cluster."},
    {"name": "checkpoints", "description": "Saved and verified states of jobs."},
    {"name": "outputs", "description": "Files that jobs have written."},
    {"name": "accounts", "description": "Login, and a user's own tokens and sessions."},
    {"name": "projects", "description": "Users, groups, projects, and the roles in them."},
    {"name": "probes", "description": "Health checks and Prometheus figures."},
]


@cache
def public_routes() -> list[BaseRoute]:
    """Return the probes, and whatever under /api/v1 people and their programs use.

    One list for all applications of a process: FastAPI builds the handlers of a router each time
    that it is included, and those of a router within a router twice.
    """
    router = APIRouter()
    router.include_router(probes.router)
    for public in PUBLIC_ROUTERS:
        router.include_router(public, prefix=API_PREFIX, dependencies=[Depends(known_query)])
    return router.routes


def describe(app: FastAPI) -> dict[str, Any]:
    """Describe an application that serves these routes; made once, on demand."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=TITLE,
            version=__version__,
            description=_DESCRIPTION,
            routes=app.routes,
            tags=_TAGS,
        )
        schemas = document["components"]["schemas"]
        schemas.update(_read_by_hand(set(schemas)))
        # FastAPI's own shape of errors, which nothing here answers with.
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        document["components"]["schemas"] = dict(sorted(schemas.items()))
        for methods in document["paths"].values():
            for operation in methods.values():
                operation["responses"] = dict(sorted(operation["responses"].items()))
        add_examples(document)
        app.openapi_schema = document
    return app.openapi_schema


def _read_by_hand(taken: set[str]) -> dict[str, Any]:
    """Return the schemas of problems, and of bodies that routes read by themselves.

    A part of the job spec that has the name of a response gets a prefix.
    """
    _, own = models_json_schema(
        [
            (model, "validation")
            for model in (
                NewNode,
                NodeChange,
                Drain,
                Resize,
                Changes,
                JobEdit,
                NewProfile,
                NewView,
                ExperimentSpec,
                NewAlert,
                AlertChange,
                NewReport,
                ReportChange,
                Question,
                LoginCode,
                NewLink,
                NewToken,
                Login,
                NewUser,
                UserChange,
                NewGroup,
                NewProject,
                ProjectChange,
                NewRole,
                NewSecret,
                BrowserCode,
                DeviceCode,
                DeviceDecision,
                NewBrowserLogin,
                NewDeviceLogin,
                Problem,
            )
        ],
        ref_template=REF,
    )
    _, spec = models_json_schema([(JobSpec, "validation")], ref_template=REF)
    text = orjson.dumps(spec["$defs"])
    for name in taken & set(spec["$defs"]):
        for quoted in (f'"{REF.format(model=name)}"', f'"{name}":{{'):
            text = text.replace(quoted.encode(), quoted.replace(name, f"Spec{name}").encode())
    return {**own["$defs"], **orjson.loads(text)}


def document() -> dict[str, Any]:
    """Return the document, without an application that could serve."""
    app = FastAPI()
    app.router.routes.extend(public_routes())
    return describe(app)


def main() -> None:
    sys.stdout.buffer.write(orjson.dumps(document(), option=orjson.OPT_INDENT_2) + b"\n")


if __name__ == "__main__":
    main()
