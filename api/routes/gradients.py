"""/training/jobs/{id}/gradients: record the gradients of a step, and read them."""

import asyncio
from collections.abc import Sequence
from itertools import repeat
from typing import Annotated

from fastapi import Path, Query, Response

from trainhall.api.login.services import ServicesDep
from trainhall.api.openapi import examples
from trainhall.api.openapi.describe import Operations, wrong_state
from trainhall.api.params import MAX_SEQUENCE, JobId
from trainhall.api.problems import RefusalError, invalid
from trainhall.api.schemas.gradients import GradientEntry, GradientHistory, Gradients, GradientStep
from trainhall.cluster.jobs.gradient_remarks import remarks
from trainhall.cluster.jobs.gradients import KEPT_RECORDS, Captured, GradientRequests
from trainhall.training.link.gradient_record import LOWEST_EXPONENT

router = Operations(prefix="/training/jobs/{job_id}/gradients", tags=["jobs"])

_NO_STEP = RefusalError(
    404, "not-found", "there is no recorded step '40 of “digits” (3f2a9c51d07b)'"
)


@router.operation(
    "POST",
    "",
    wrong_state(
        f"gradients of {examples.JOB} cannot be recorded: it is completed and takes no more steps"
    ),
    summary="Record the gradients of a step",
    answer="The job's next step is recorded.",
    status=202,
)
async def capture_gradients(services: ServicesDep, job_id: JobId) -> GradientRequests:
    """Norms and histograms, parameter by parameter, of the next step of a task.

    While a request waits for its answer, asking again changes nothing.
    """
    return await services.gradients.ask(job_id)


@router.operation(
    "GET",
    "",
    invalid("max_steps", 0, "must be at least 1"),
    summary="Read a job's gradients by parameter",
    answer="The recorded steps, oldest first.",
    response_model=GradientHistory,
)
async def read_gradients(
    services: ServicesDep,
    job_id: JobId,
    max_steps: Annotated[
        int,
        Query(ge=1, le=KEPT_RECORDS, description="At most this many steps, evenly spaced."),
    ] = 200,
) -> Response:
    """The norm of every parameter's gradient at the recorded steps.

    On overlapping steps the newest valid attempt wins.
    """
    asked, records = await services.gradients.history(job_id, max_steps)
    # Of a large model these are hundreds of thousands of numbers: others are served meanwhile.
    body = await asyncio.to_thread(_encoded, asked, records)
    return Response(body, media_type="application/json")


def _encoded(asked: GradientRequests, records: Sequence[Captured]) -> str:
    """Encode a `GradientHistory`."""
    names = records[-1].names if records else []
    steps = []
    for record in records:
        columns = zip(record.norms, record.largest, strict=True)
        known = dict(zip(record.names, columns, strict=True))
        pairs = [known.get(name, (None, None)) for name in names]
        norms, largest = [norm for norm, _ in pairs], [most for _, most in pairs]
        steps.append(GradientStep.of(record, norms=norms, largest=largest))
    history = GradientHistory.of(asked, names=names, remarks=remarks(records), steps=steps)
    return history.model_dump_json()


@router.operation(
    "GET",
    "/{step}",
    _NO_STEP,
    summary="Read the gradients of a step",
    answer="Parameter by parameter.",
)
async def read_gradients_of_step(
    services: ServicesDep,
    job_id: JobId,
    step: Annotated[
        int, Path(ge=1, le=MAX_SEQUENCE, description="A recorded step.", examples=[120])
    ],
) -> Gradients:
    """The norms of one recorded step, and its histograms if it was recorded on request."""
    record, histograms = await services.gradients.one(job_id, step)
    each = histograms if histograms is not None else repeat(None, len(record.names))
    columns = zip(record.names, record.norms, record.largest, each, strict=True)
    entries = [
        GradientEntry(name=name, norm=norm, largest=largest, histogram=histogram)
        for name, norm, largest, histogram in columns
    ]
    return Gradients.of(record, lowest_exponent=LOWEST_EXPONENT, entries=entries)
