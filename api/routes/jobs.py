"""/training/jobs: submit, read and command jobs."""

import re
from typing import Annotated, Literal

from fastapi import Query, Request, Response
from fastapi.responses import StreamingResponse

from trainhall.api.bodies import parsed, read_document, read_json
from trainhall.api.creation import created, request_key
from trainhall.api.login.services import ServicesDep
from trainhall.api.openapi import examples
from trainhall.api.openapi.describe import (
    BAD_LIMIT,
    BAD_SPEC,
    NEITHER_JSON_NOR_YAML,
    QUEUE_FULL,
    SPEC_TOO_LARGE,
    Operations,
    body,
    document_body,
    key_taken,
    wrong_state,
)
from trainhall.api.params import Cursor, IdempotencyKey, JobId, Limit, Sequence
from trainhall.api.problems import invalid
from trainhall.api.schemas.jobs import Changes, DryRun, JobEdit, Resize
from trainhall.cluster.data_sets.views import JobDataSets
from trainhall.cluster.environments.views import JobEnvironment
from trainhall.cluster.jobs.annotations import Annotation
from trainhall.cluster.jobs.listing.keys import SORT_KEYS, GroupKey
from trainhall.cluster.jobs.listing.query import MAX_QUERY
from trainhall.cluster.jobs.source.packages import JobPackages
from trainhall.cluster.jobs.source.provenance import Provenance
from trainhall.cluster.jobs.views import AttemptPage, EventPage, Job, JobGroupPage, JobPage
from trainhall.cluster.lifecycle.states import JobState
from trainhall.cluster.pagination import page_of
from trainhall.cluster.queue.views import QueueHistory
from trainhall.monitoring import logs
from trainhall.monitoring.logs import LogPage
from trainhall.training.spec import parse_spec
from trainhall.training.spec.base import TAG_RULE

router = Operations(prefix="/training/jobs", tags=["jobs"])

_SUBMIT_BODY = document_body(
    "JobSpec",
    "A job spec",
    {
        "examples": {
            "task": {"summary": "A built-in task", "value": examples.SPEC},
            "script": {
                "summary": "A script that runs under torchrun",
                "value": {
                    "name": "my script",
                    "script": {"path": "/srv/train.py", "args": ["--epochs", "3"]},
                    "resources": {"workers": 8, "device": "cuda"},
                },
            },
        }
    },
    examples.SPEC_YAML,
)


@router.operation(
    "POST",
    "",
    BAD_SPEC,
    key_taken(examples.JOB),
    SPEC_TOO_LARGE,
    NEITHER_JSON_NOR_YAML,
    QUEUE_FULL,
    summary="Submit a job",
    answer="The job is queued.",
    status=201,
    openapi_extra=_SUBMIT_BODY,
    also={
        200: {
            "description": "The spec is valid; nothing was created (`dry_run`).",
            "model": DryRun,
        }
    },
    response_model=Job,
)
async def submit_job(
    request: Request,
    services: ServicesDep,
    dry_run: Annotated[
        bool, Query(description="Only validate the spec and return when the job would start.")
    ] = False,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """The body is a bare job spec, in JSON or YAML. The job belongs to the caller, or to the `user`
    that an admin names.

    A submission that was answered is kept, whatever happens to the coordinator afterwards.
    """
    raw, kind = await read_document(request)
    spec = await parsed(parse_spec, raw, kind)
    if spec.user is None:
        spec = spec.model_copy(update={"user": services.caller.user})
    if dry_run:
        forecast = await services.queue.forecast(spec)
        plan = DryRun(
            name=spec.name,
            world_size=spec.resources.workers,
            priority=spec.priority,
            spec=spec.model_dump(mode="json"),
            code_missing=await services.jobs.code_missing(spec),
            shortage=forecast.shortage,
            outlook=forecast.outlook,
            warnings=spec.warnings,
        )
        return Response(plan.model_dump_json(), 200, media_type="application/json")
    view, is_new = await services.jobs.submit(spec, request_key(idempotency_key, raw))
    return created(request, view, is_new)


States = Annotated[
    list[JobState] | None, Query(description="Only jobs in this state. May be repeated.")
]
Search = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=256,
        description="Only jobs whose name has this in it, in upper or lower case, or whose id "
        "begins with it.",
    ),
]
ListQuery = Annotated[
    str | None,
    Query(
        max_length=MAX_QUERY,
        description="Only jobs that match all terms of this query, such as `state:failed "
        "parameters.lr>0.01 -user:maria` (docs/rest-api.md).",
        examples=["state:failed lr>0.01"],
    ),
]


@router.operation("GET", "", summary="List jobs", answer="A page of jobs.")
async def list_jobs(
    services: ServicesDep,
    limit: Limit = 50,
    cursor: Cursor = None,
    state: States = None,
    search: Search = None,
    query: ListQuery = None,
    sort: Annotated[
        str | None,
        Query(
            max_length=256,
            description=f"Sort by {', '.join(SORT_KEYS)}, parameters.NAME or metrics.NAME (latest "
            "value); `-` before it: in descending order. Jobs without a value are last.",
            examples=["-metrics.eval_accuracy"],
        ),
    ] = None,
) -> JobPage:
    """The newest first, or by `sort`. A cursor continues the same order only."""
    return await services.jobs.list(
        limit=limit,
        cursor=cursor,
        states=state or (),
        search=search,
        query=query,
        sort=sort,
        me=services.caller.user,
    )


@router.operation("GET", "/groups", summary="Count jobs by a field", answer="A page of groups.")
async def list_job_groups(
    services: ServicesDep,
    by: Annotated[GroupKey, Query(description="The field.", examples=["user"])],
    limit: Limit = 1000,
    cursor: Cursor = None,
    state: States = None,
    search: Search = None,
    query: ListQuery = None,
) -> JobGroupPage:
    """The largest group first; a job counts for each of its tags. The `query` of a group, added to
    the one given here, lists its jobs."""
    found = await services.jobs.groups(
        by, states=state or (), search=search, query=query, me=services.caller.user
    )
    items, following = page_of("groups", found, limit, cursor)
    return JobGroupPage(items=items, next_cursor=following)


@router.operation("GET", "/{job_id}", summary="Read a job", answer="The job.")
async def get_job(services: ServicesDep, job_id: JobId) -> Job:
    """Includes its state with the reason, its progress, its last metrics and its spec."""
    return await services.jobs.get(job_id)


@router.operation(
    "PATCH",
    "/{job_id}",
    invalid("tags", ["-a"], TAG_RULE),
    wrong_state(
        f"{examples.JOB} cannot be archived: it is running; cancel it first, or wait until "
        "it has ended"
    ),
    summary="Change tags and notes, or archive a job",
    answer="The job.",
    reads=body(
        JobEdit,
        {
            "tags": {"add_tags": ["baseline"], "remove_tags": ["draft"]},
            "notes": {"notes": "Best."},
            "archive": {"archived": True},
        },
        required=True,
    ),
)
async def change_job(services: ServicesDep, job_id: JobId, request: Request) -> Job:
    """Tags and notes change in every state; the spec keeps those that the job was submitted with.
    Archiving hides a job that has ended from lists, and keeps everything."""
    wanted = await read_json(request, JobEdit)
    return await services.jobs.annotate(job_id, Annotation(**wanted.model_dump()))


@router.operation(
    "DELETE",
    "/{job_id}",
    wrong_state(f"{examples.JOB} cannot be cancelled: it is completed, which is final"),
    summary="Cancel a job",
    answer="It is being cancelled, or is cancelled already.",
    status=202,
)
async def cancel_job(services: ServicesDep, job_id: JobId) -> Job:
    """Ends its ranks at once, without saving. Cancelling a cancelled job again has no effect."""
    return await services.jobs.cancel(job_id)


@router.operation(
    "DELETE",
    "/{job_id}/record",
    wrong_state(
        f"{examples.JOB} cannot be deleted: it is running; cancel it first, or wait until "
        "it has ended"
    ),
    summary="Delete a job for good",
    status=204,
)
async def delete_job(services: ServicesDep, job_id: JobId) -> None:
    """Deletes a job that has ended with its events, metrics, logs and checkpoints, which cannot be
    undone. Files on shared storage are removed as soon as a node that sees it is connected. A run
    of an experiment that has not ended is refused."""
    await services.jobs.delete(job_id)


@router.operation(
    "PUT",
    "/{job_id}/pause",
    wrong_state(f"{examples.JOB} cannot be paused: it is completed, which is final"),
    summary="Pause a job",
    answer="It is being paused, or is paused already.",
    status=202,
)
async def pause_job(services: ServicesDep, job_id: JobId) -> Job:
    """Has its ranks agree on a step, save a checkpoint and leave; takes a waiting job out of the
    queue."""
    return await services.jobs.pause(job_id)


@router.operation(
    "PUT",
    "/{job_id}/resume",
    wrong_state(
        f"{examples.JOB} cannot be resumed: it is running; only a paused job can be resumed"
    ),
    invalid("resources.workers", 0, "must be at least 1"),
    summary="Resume a paused job",
    answer="It is queued again.",
    status=202,
    reads=body(Changes, {"unchanged": {}, "in another way": examples.CHANGES}, required=False),
)
async def resume_job(services: ServicesDep, job_id: JobId, request: Request) -> Job:
    """Continues from its newest good checkpoint, once devices are free: as it was, or with another
    strategy or on other resources, which it keeps."""
    wanted = await read_json(request, Changes)
    return await services.jobs.resume(
        job_id, resources=wanted.resources, parallelism=wanted.parallelism
    )


@router.operation(
    "PUT",
    "/{job_id}/resize",
    wrong_state(
        f"{examples.JOB} cannot be resized: it is completed; restore one of its checkpoints "
        "with other resources instead"
    ),
    invalid("resources.workers", 0, "must be at least 1"),
    summary="Resize a job",
    answer="The new number is requested; it applies as soon as devices are free.",
    status=202,
    reads=body(
        Resize,
        {"a fixed number": {"workers": 4}, "elastic": {"min_workers": 2, "max_workers": 8}},
        required=True,
    ),
)
async def resize_job(services: ServicesDep, job_id: JobId, request: Request) -> Job:
    """Changes its number of workers. A running job changes once devices are free: under
    `ddp` in place, any other saves and resumes from there. It keeps its size until then."""
    wanted = await read_json(request, Resize)
    return await services.jobs.resize(job_id, wanted.model_dump(exclude_none=True))


@router.operation(
    "GET", "/{job_id}/events", summary="List a job's events", answer="A page of events."
)
async def list_events(
    services: ServicesDep,
    job_id: JobId,
    after: Annotated[Sequence, Query(description="Only events with a `seq` above this.")] = 0,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> EventPage:
    """The oldest first. A cursor wins over `after`."""
    return await services.jobs.events(job_id, after=after, limit=limit, cursor=cursor)


@router.operation(
    "GET",
    "/{job_id}/queue-history",
    summary="Read a job's positions in the queue over time",
    answer="The positions.",
)
async def read_queue_history(services: ServicesDep, job_id: JobId) -> QueueHistory:
    """Sampled every 10 seconds: each change among the first ten, and changes by a tenth further
    back. Of more than 100 positions the older half is joined in pairs. They are deleted with the
    job."""
    return await services.queue_history.of_job(job_id)


_Rank = Annotated[int | None, Query(ge=0, le=2**31 - 1, description="Only this rank.")]
_Stream = Annotated[Literal["stdout", "stderr"] | None, Query(description="Only this stream.")]
_Attempt = Annotated[int | None, Query(ge=1, le=2**31 - 1, description="Only this attempt.")]


@router.operation(
    "GET",
    "/{job_id}/logs",
    BAD_LIMIT,
    summary="Read a job's logs",
    answer="A page of lines.",
)
async def read_logs(
    services: ServicesDep,
    job_id: JobId,
    rank: _Rank = None,
    stream: _Stream = None,
    attempt: _Attempt = None,
    after: Annotated[
        str | None,
        Query(
            max_length=512, description="`next_cursor` of the previous page, or of any earlier one."
        ),
    ] = None,
    tail: Annotated[
        int | None,
        Query(ge=1, le=10_000, description="Start with the last N lines instead."),
    ] = None,
    before: Annotated[
        str | None,
        Query(max_length=512, description="`previous_cursor` of a page: the lines before it."),
    ] = None,
    at: Annotated[
        str | None,
        Query(
            max_length=64,
            description="The lines around one line, given as ATTEMPT.RANK.STREAM.OFFSET.",
            examples=["1.0.stdout.4096"],
        ),
    ] = None,
    search: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=256,
            description="Only lines with these characters, in upper or lower case.",
        ),
    ] = None,
    limit: Annotated[
        int, Query(ge=1, le=10_000, description="At most this many lines per page.")
    ] = 1000,
) -> LogPage:
    """In the order in which the coordinator received them, each with its rank, stream and offset.

    The last page has a cursor too: hand it back later for what was written since. A page of a
    search may hold few lines, or none, while `more` says that there is more to search.
    """
    await services.jobs.check(job_id)
    begins = {"before": before, "at": at, "tail": tail}
    given = [name for name, value in begins.items() if value is not None]
    if len(given) > 1 or (given and search is not None):
        other = "search" if search is not None else given[1]
        raise invalid(given[0], begins[given[0]], f"cannot be given together with {other}")
    line = None if at is None else _line_id(at)
    return await logs.read_logs(
        services.unlimited.db, job_id, rank=rank, stream=stream, attempt=attempt, after=after,
        before=before, at=line, tail=tail, search=search, limit=limit,
    )  # fmt: skip


@router.operation(
    "GET",
    "/{job_id}/logs/download",
    summary="Download a job's logs",
    also={
        200: {
            "description": "All stored lines.",
            "content": {"text/plain": {"schema": {"type": "string"}, "example": "epoch 4\n"}},
        }
    },
    response_class=Response,
)
async def download_logs(
    services: ServicesDep,
    job_id: JobId,
    rank: _Rank = None,
    stream: _Stream = None,
    attempt: _Attempt = None,
) -> StreamingResponse:
    """The lines stored when the download begins, as text. Without `rank`, they begin with their
    rank, as in `[3] `, if several ranks of the job have written."""
    await services.jobs.check(job_id)
    text = logs.log_text(services.unlimited.db, job_id, rank=rank, stream=stream, attempt=attempt)
    headers = {
        "Content-Disposition": f'attachment; filename="{job_id}.log"',
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
    return StreamingResponse(text, media_type="text/plain; charset=utf-8", headers=headers)


_LINE = re.compile(r"(\d{1,9})\.(\d{1,9})\.(stdout|stderr)\.(\d{1,18})", re.ASCII)


def _line_id(text: str) -> logs.LineId:
    match = _LINE.fullmatch(text)
    if match is None:
        raise invalid("at", text, "must be ATTEMPT.RANK.STREAM.OFFSET, such as 1.0.stdout.4096")
    attempt, rank, stream, offset = match.groups()
    return logs.LineId(int(attempt), int(rank), stream, int(offset))


@router.operation(
    "GET", "/{job_id}/attempts", summary="List a job's attempts", answer="A page of attempts."
)
async def list_attempts(
    services: ServicesDep, job_id: JobId, limit: Limit = 1000, cursor: Cursor = None
) -> AttemptPage:
    """The oldest first: where each ran, how it ended and why."""
    attempts = await services.jobs.attempts(job_id)
    items, next_cursor = page_of("attempts", attempts, limit, cursor)
    return AttemptPage(items=items, next_cursor=next_cursor)


@router.operation(
    "GET",
    "/{job_id}/packages",
    summary="Read the packages that a job ran with",
    answer="The Python environment.",
)
async def read_packages(
    services: ServicesDep, job_id: JobId, attempt: _Attempt = None
) -> JobPackages:
    """Python, operating system, CUDA and installed packages of rank 0, as it found them at its
    start: of one attempt, or of the newest that reported them."""
    return await services.jobs.packages(job_id, attempt)


@router.operation(
    "GET",
    "/{job_id}/provenance",
    summary="Read where a job comes from",
    answer="The repository and the command.",
)
async def read_provenance(services: ServicesDep, job_id: JobId) -> Provenance:
    """Commit, branch, remote and uncommitted changes of the git repository of a job's code, and the
    command that submitted it. Roles that may not read code get no diff."""
    return await services.jobs.provenance(job_id)


@router.operation(
    "GET",
    "/{job_id}/environment",
    summary="Read a job's environment",
    answer="The environment, and what its lock says.",
)
async def read_environment(services: ServicesDep, job_id: JobId) -> JobEnvironment:
    """The Python environment of the job's ranks; the first host that prepares it makes the lock."""
    return await services.environments.read(job_id)


@router.operation(
    "GET",
    "/{job_id}/environment/lock",
    summary="Download the lock of a job's environment",
    also={
        200: {
            "description": "A requirements file with hashes.",
            "content": {
                "text/plain": {"schema": {"type": "string"}, "example": "einops==0.8.2 \\\n"}
            },
        }
    },
    response_class=Response,
)
async def download_lock(services: ServicesDep, job_id: JobId) -> Response:
    """Exact versions and hashes of all packages, as `pip install --require-hashes -r` takes them.
    404 until a host has made it."""
    return Response(
        await services.environments.requirements(job_id),
        media_type="text/plain; charset=utf-8",
        headers={
            "Content-Disposition": f'attachment; filename="{job_id}-requirements.txt"',
            "X-Content-Type-Options": "nosniff",
        },
    )


@router.operation(
    "GET",
    "/{job_id}/data",
    summary="List a job's data sets",
    answer="The data sets, and what the hosts found.",
)
async def list_data_sets(services: ServicesDep, job_id: JobId) -> JobDataSets:
    """The data sets that the spec names, each with the fingerprint of the newest attempt that
    prepared it."""
    return await services.data.read(job_id)
