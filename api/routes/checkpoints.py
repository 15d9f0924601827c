"""/checkpoints: list, keep, delete and restore."""

from fastapi import APIRouter, Request, Response

from trainhall.api import examples
from trainhall.api.bodies import read_json
from trainhall.api.context import Hall
from trainhall.api.describe import (
    BAD_LIMIT,
    BODY_TOO_LARGE,
    NO_CHECKPOINT,
    NO_JOB,
    NOT_JSON,
    answers,
    body,
    name_operations,
    wrong_state,
)
from trainhall.api.params import CheckpointId, Cursor, JobId, Limit
from trainhall.api.problems import invalid
from trainhall.api.schemas.checkpoints import (
    Checkpoint,
    CheckpointPage,
    CheckpointProblem,
    Restore,
    Verification,
)
from trainhall.api.schemas.jobs import Job

router = APIRouter(prefix="/checkpoints", tags=["checkpoints"])


@router.get(
    "/jobs/{job_id}",
    summary="List a job's checkpoints",
    responses=answers(
        examples.page(examples.CHECKPOINT), NO_JOB, BAD_LIMIT, told="A page of checkpoints."
    ),
)
async def list_checkpoints(
    hall: Hall, job_id: JobId, limit: Limit = 1000, cursor: Cursor = None
) -> CheckpointPage:
    """The newest first."""
    page = await hall.checkpoints.list(job_id, limit=limit, cursor=cursor)
    items = [Checkpoint.model_validate(view) for view in page.items]
    return CheckpointPage(items=items, next_cursor=page.next_cursor)


@router.get(
    "/{checkpoint_id}",
    summary="Read a checkpoint",
    responses=answers(examples.CHECKPOINT, NO_CHECKPOINT, told="The checkpoint."),
)
async def get_checkpoint(hall: Hall, checkpoint_id: CheckpointId) -> Checkpoint:
    """Its step, size and metrics."""
    return Checkpoint.model_validate(await hall.checkpoints.get(checkpoint_id))


@router.delete(
    "/{checkpoint_id}",
    status_code=204,
    summary="Delete a checkpoint",
    responses=answers(
        None,
        NO_CHECKPOINT,
        wrong_state("checkpoint 5e60b7d2f913 is pinned; unpin it first"),
        status=204,
        told="It is deleted; its files go in a moment.",
    ),
)
async def delete_checkpoint(hall: Hall, checkpoint_id: CheckpointId) -> Response:
    """A pinned checkpoint must be unpinned first."""
    await hall.checkpoints.delete(checkpoint_id)
    return Response(status_code=204)


@router.put(
    "/{checkpoint_id}/pin",
    summary="Pin a checkpoint",
    responses=answers(
        examples.PINNED,
        NO_CHECKPOINT,
        wrong_state("checkpoint 5e60b7d2f913 is deleted"),
        told="It is pinned.",
    ),
)
async def pin_checkpoint(hall: Hall, checkpoint_id: CheckpointId) -> Checkpoint:
    """Retention leaves a pinned checkpoint alone."""
    return Checkpoint.model_validate(await hall.checkpoints.pin(checkpoint_id))


@router.delete(
    "/{checkpoint_id}/pin",
    summary="Unpin a checkpoint",
    responses=answers(
        examples.CHECKPOINT,
        NO_CHECKPOINT,
        wrong_state("checkpoint 5e60b7d2f913 is deleted"),
        told="It is not pinned any more.",
    ),
)
async def unpin_checkpoint(hall: Hall, checkpoint_id: CheckpointId) -> Checkpoint:
    """Retention may take it from now on."""
    return Checkpoint.model_validate(await hall.checkpoints.unpin(checkpoint_id))


@router.post(
    "/{checkpoint_id}/verify",
    summary="Verify a checkpoint",
    responses=answers(
        examples.VERIFIED,
        NO_CHECKPOINT,
        wrong_state("checkpoint 5e60b7d2f913 is deleted"),
        told="What was found; no problems mean that it is good.",
    ),
)
async def verify_checkpoint(hall: Hall, checkpoint_id: CheckpointId) -> Verification:
    """Hashes every file and compares it with the manifest.

    A damaged checkpoint is marked corrupt, and no attempt starts from it any more.
    """
    found = await hall.checkpoints.verify(checkpoint_id)
    problems = [CheckpointProblem.model_validate(problem) for problem in found]
    return Verification(good=not problems, problems=problems)


@router.post(
    "/{checkpoint_id}/restore",
    status_code=202,
    summary="Restore a checkpoint",
    openapi_extra=body(
        Restore, {"as it was": {}, "on more workers": examples.RESTORE}, required=False
    ),
    responses=answers(
        examples.RESTORED,
        NO_CHECKPOINT,
        BODY_TOO_LARGE,
        NOT_JSON,
        wrong_state("job 3f2a9c51d07b is running; pause or cancel it first"),
        invalid("resources.workers", 0, "must be at least 1"),
        status=202,
        told="The job is queued; its next attempt starts from this checkpoint.",
    ),
)
async def restore_checkpoint(hall: Hall, checkpoint_id: CheckpointId, request: Request) -> Job:
    """Starts a new attempt of the checkpoint's job from there, as it was or on other resources. The
    job must not be running."""
    wanted = await read_json(request, Restore)
    view = await hall.checkpoints.restore(
        checkpoint_id, resources=wanted.resources, parallelism=wanted.parallelism
    )
    return Job.model_validate(view)


name_operations(router)
