"""/experiments: create, read, command and analyze experiments."""

from typing import Annotated

from fastapi import Query, Request, Response

from trainhall.api.bodies import parsed, read_document
from trainhall.api.creation import created, request_key
from trainhall.api.login.filters import OwnerFilterDep
from trainhall.api.login.services import ServicesDep
from trainhall.api.openapi import examples
from trainhall.api.openapi.describe import (
    NEITHER_JSON_NOR_YAML,
    REF,
    SPEC_TOO_LARGE,
    Operations,
    document_body,
    invalid_experiment,
    key_taken,
    wrong_state,
)
from trainhall.api.params import (
    Cursor,
    ExperimentId,
    IdempotencyKey,
    Limit,
)
from trainhall.api.problems import invalid
from trainhall.cluster.experiments.analysis.views import Analysis
from trainhall.cluster.experiments.report.formats import CONTENT_SECURITY_POLICY, ReportFormat
from trainhall.cluster.experiments.spec import parse_experiment
from trainhall.cluster.experiments.views import (
    Experiment,
    ExperimentPage,
    ExperimentPlan,
    TrialPage,
)

router = Operations(prefix="/experiments", tags=["experiments"])

_BODY = document_body(
    "ExperimentSpec", "An experiment", {"example": examples.SWEEP}, examples.SWEEP_YAML
)
_MEDIA = {
    ReportFormat.HTML: "text/html; charset=utf-8",
    ReportFormat.MD: "text/markdown; charset=utf-8",
    ReportFormat.JSON: "application/json",
    ReportFormat.CSV: "text/csv; charset=utf-8",
}
_EXAMPLES = {
    ReportFormat.HTML: '<!doctype html>\n<html lang="en">…',
    ReportFormat.MD: "# learning rates\n\n## Summary\n…",
    ReportFormat.CSV: "trial,repeat,job_id,state,training.learning_rate,objective,…\n",
}


@router.operation(
    "POST",
    "",
    invalid_experiment("space.training.stepz", "unknown key; did you mean 'steps'?"),
    key_taken(examples.EXPERIMENT),
    SPEC_TOO_LARGE,
    NEITHER_JSON_NOR_YAML,
    summary="Create an experiment",
    answer="The experiment runs; its trials are decided.",
    status=201,
    openapi_extra=_BODY,
    also={
        200: {
            "description": "The experiment is valid; nothing was created (`dry_run`).",
            "model": ExperimentPlan,
        }
    },
    response_model=Experiment,
)
async def create_experiment(
    request: Request,
    services: ServicesDep,
    dry_run: Annotated[
        bool, Query(description="Only validate the experiment and return its configurations.")
    ] = False,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """The body is an experiment, in JSON or YAML. Every job that it would submit is checked first.

    Its trials are ordinary jobs: they wait in the queue, count against quotas and can be paused.
    They belong to the caller, or to the `job.user` that an admin names."""
    raw, kind = await read_document(request)
    spec = await parsed(parse_experiment, raw, kind)
    if spec.job.get("user") is None:
        spec.job["user"] = services.caller.user
    if dry_run:
        plan = await services.experiments.plan(spec)
        return Response(plan.model_dump_json(), 200, media_type="application/json")
    view, is_new = await services.experiments.create(spec, request_key(idempotency_key, raw))
    return created(request, view, is_new)


@router.operation("GET", "", summary="List experiments", answer="A page of experiments.")
async def list_experiments(
    services: ServicesDep, of: OwnerFilterDep, limit: Limit = 50, cursor: Cursor = None
) -> ExperimentPage:
    """Lists those of your projects, the newest first."""
    return await services.experiments.list(limit=limit, cursor=cursor, of=of)


@router.operation("GET", "/{experiment_id}", summary="Read an experiment", answer="The experiment.")
async def get_experiment(services: ServicesDep, experiment_id: ExperimentId) -> Experiment:
    """Includes the number of runs in each state, and the best trial so far."""
    return await services.experiments.get(experiment_id)


@router.operation(
    "GET",
    "/{experiment_id}/trials",
    summary="List an experiment's trials",
    answer="A page of runs.",
)
async def list_trials(
    services: ServicesDep,
    experiment_id: ExperimentId,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> TrialPage:
    """Each run of each configuration, in the order of their numbers."""
    return await services.experiments.trials(experiment_id, limit=limit, cursor=cursor)


@router.operation(
    "PUT",
    "/{experiment_id}/pause",
    wrong_state(f"{examples.EXPERIMENT} cannot be paused: it is completed, which is final"),
    summary="Pause an experiment",
    answer="Its jobs are being paused, or are paused already.",
    status=202,
)
async def pause_experiment(services: ServicesDep, experiment_id: ExperimentId) -> Experiment:
    """Pauses its jobs, and starts no further trial."""
    return await services.experiments.pause(experiment_id)


@router.operation(
    "PUT",
    "/{experiment_id}/resume",
    wrong_state(
        f"{examples.EXPERIMENT} cannot be resumed: it is running; only a "
        "paused experiment can be resumed"
    ),
    summary="Resume a paused experiment",
    answer="Its jobs are queued again.",
    status=202,
)
async def resume_experiment(services: ServicesDep, experiment_id: ExperimentId) -> Experiment:
    """Resumes the jobs that were paused with it, and starts further trials. A job that was paused
    by itself stays paused."""
    return await services.experiments.resume(experiment_id)


@router.operation(
    "DELETE",
    "/{experiment_id}",
    wrong_state(f"{examples.EXPERIMENT} cannot be cancelled: it is completed, which is final"),
    summary="Cancel an experiment",
    answer="Its jobs are being cancelled, or are cancelled already.",
    status=202,
)
async def cancel_experiment(services: ServicesDep, experiment_id: ExperimentId) -> Experiment:
    """Cancels its jobs, and starts no further trial. What has completed stays."""
    return await services.experiments.cancel(experiment_id)


@router.operation(
    "POST",
    "/{experiment_id}/analyze",
    summary="Analyze an experiment",
    answer="The analysis; nothing is stored.",
)
async def analyze_experiment(services: ServicesDep, experiment_id: ExperimentId) -> Analysis:
    """Compares its trials, rates the fields that vary and sums up what the figures show.

    An experiment that still runs is analyzed as far as its runs have ended. Takes seconds with
    many trials."""
    return await services.analyses.analyze(experiment_id)


@router.operation(
    "GET",
    "/{experiment_id}/report",
    invalid("format", "pdf", "must be one of html, md, json, csv"),
    summary="Read a report of an experiment",
    also={
        200: {
            "description": "The report.",
            "content": {
                media.partition(";")[0]: {"schema": {"type": "string"}, "example": _EXAMPLES[form]}
                for form, media in _MEDIA.items()
                if form is not ReportFormat.JSON
            }
            | {"application/json": {"schema": {"$ref": REF.format(model="Analysis")}}},
        }
    },
    response_class=Response,
)
async def read_report(
    services: ServicesDep,
    experiment_id: ExperimentId,
    form: Annotated[
        ReportFormat,
        Query(
            alias="format",
            description="`html`: one file that loads nothing; `md`: Markdown with SVG charts; "
            "`json`: the analysis; `csv`: a line for each run.",
        ),
    ] = ReportFormat.HTML,
) -> Response:
    """Made when it is read, as far as its runs have ended."""
    content = await services.analyses.report(experiment_id, form)
    headers = {
        "Content-Disposition": f'inline; filename="experiment-{experiment_id}.{form}"',
        "Content-Security-Policy": CONTENT_SECURITY_POLICY,
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
    return Response(content, headers=headers, media_type=_MEDIA[form])
