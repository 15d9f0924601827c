"""/checkpoints: list, keep, delete and restore."""

from typing import Annotated

from fastapi import Path, Query, Request, Response
from fastapi.responses import FileResponse

from trainhall.api.bodies import read_json
from trainhall.api.downloads.files import BYTES, OpenFileResponse
from trainhall.api.login.services import ServicesDep
from trainhall.api.openapi import examples
from trainhall.api.openapi.describe import Operations, body, wrong_state
from trainhall.api.params import CheckpointId, Cursor, JobId, Limit
from trainhall.api.problems import RefusalError, invalid
from trainhall.api.schemas.checkpoints import (
    CheckpointFiles,
    CheckpointProblem,
    RetentionList,
    Verification,
)
from trainhall.api.schemas.jobs import Changes
from trainhall.cluster.checkpoints.views import Checkpoint, CheckpointPage
from trainhall.cluster.jobs.views import Job

router = Operations(prefix="/checkpoints", tags=["checkpoints"])

_FILE = {
    "description": "The contents of the file; its hash is in the list of files.",
    "content": {
        BYTES: {
            "schema": {"type": "string", "format": "binary"},
            "example": "(the bytes of the file)",
        }
    },
}
_NO_FILE = RefusalError(404, "not-found", "there is no checkpoint file '5e60b7d2f913/state.json'")
_NOT_SEEN = wrong_state(
    "the coordinator does not see /shared/3f2a9c51d07b/step-00000100-a1-g1; do this on a host that "
    "does, with the folder's name: `trainhall ckpt verify "
    "/shared/3f2a9c51d07b/step-00000100-a1-g1`"
)


@router.operation(
    "GET", "/jobs/{job_id}", summary="List a job's checkpoints", answer="A page of checkpoints."
)
async def list_checkpoints(
    services: ServicesDep, job_id: JobId, limit: Limit = 1000, cursor: Cursor = None
) -> CheckpointPage:
    """The newest first."""
    return await services.checkpoints.list(job_id, limit=limit, cursor=cursor)


@router.operation(
    "POST",
    "/jobs/{job_id}/collect",
    summary="Apply a job's retention",
    answer="Kept and deleted checkpoints, with the reasons.",
)
async def collect_checkpoints(
    services: ServicesDep,
    job_id: JobId,
    dry_run: Annotated[bool, Query(description="Only return what would be deleted.")] = False,
) -> RetentionList:
    """Deletes the checkpoints that the job's `checkpoint` settings do not keep. Every save does it
    by itself; this is for after one was unpinned."""
    return RetentionList(items=await services.checkpoints.collect(job_id, dry_run=dry_run))


@router.operation("GET", "/{checkpoint_id}", summary="Read a checkpoint", answer="The checkpoint.")
async def get_checkpoint(services: ServicesDep, checkpoint_id: CheckpointId) -> Checkpoint:
    """Includes its step, size and metrics."""
    return await services.checkpoints.get(checkpoint_id)


@router.operation(
    "DELETE",
    "/{checkpoint_id}",
    wrong_state("checkpoint 5e60b7d2f913 is pinned; unpin it first"),
    summary="Delete a checkpoint",
    answer="Deleted; its files are removed shortly after.",
    status=204,
)
async def delete_checkpoint(services: ServicesDep, checkpoint_id: CheckpointId) -> Response:
    """A pinned checkpoint must be unpinned first."""
    await services.checkpoints.delete(checkpoint_id)
    return Response(status_code=204)


@router.operation(
    "PUT",
    "/{checkpoint_id}/pin",
    wrong_state("checkpoint 5e60b7d2f913 is deleted; it can no longer be pinned"),
    summary="Pin a checkpoint",
    answer="Pinned.",
)
async def pin_checkpoint(services: ServicesDep, checkpoint_id: CheckpointId) -> Checkpoint:
    """Retention leaves a pinned checkpoint alone."""
    return await services.checkpoints.set_pinned(checkpoint_id, True)


@router.operation(
    "DELETE",
    "/{checkpoint_id}/pin",
    wrong_state("checkpoint 5e60b7d2f913 is deleted; it can no longer be unpinned"),
    summary="Unpin a checkpoint",
    answer="Unpinned.",
)
async def unpin_checkpoint(services: ServicesDep, checkpoint_id: CheckpointId) -> Checkpoint:
    """Retention may take it from now on."""
    return await services.checkpoints.set_pinned(checkpoint_id, False)


@router.operation(
    "POST",
    "/{checkpoint_id}/verify",
    wrong_state("checkpoint 5e60b7d2f913 is deleted"),
    summary="Verify a checkpoint",
    answer="The problems found; none means that it is intact.",
)
async def verify_checkpoint(services: ServicesDep, checkpoint_id: CheckpointId) -> Verification:
    """Hashes every file and compares it with the manifest.

    A damaged checkpoint is marked corrupt, and no attempt starts from it any more. One that was
    marked and is good again, say from a backup, loses the mark.
    """
    found = await services.checkpoints.verification.verify(checkpoint_id)
    problems = [CheckpointProblem.model_validate(problem) for problem in found]
    return Verification(good=not problems, problems=problems)


@router.operation(
    "GET",
    "/{checkpoint_id}/files",
    _NOT_SEEN,
    summary="List a checkpoint's files",
    answer="Every file with its size and hash.",
)
async def list_checkpoint_files(
    services: ServicesDep, checkpoint_id: CheckpointId
) -> CheckpointFiles:
    """Lists the files in its manifest, and the manifest. The coordinator must see them: in its
    own store, or on storage that it shares with the nodes."""
    return CheckpointFiles.model_validate(
        {"items": await services.checkpoints.files.list(checkpoint_id)}
    )


@router.operation(
    "GET",
    "/{checkpoint_id}/files/{path:path}",
    _NO_FILE,
    _NOT_SEEN,
    summary="Read a checkpoint's file",
    also={200: _FILE},
    response_class=FileResponse,
)
async def read_checkpoint_file(
    services: ServicesDep,
    checkpoint_id: CheckpointId,
    path: Annotated[
        str, Path(description="The path, as in the list of files.", examples=["state.json"])
    ],
) -> FileResponse:
    """Sent as it is read from the disk; ranges of bytes are served."""
    return OpenFileResponse(await services.checkpoints.files.open(checkpoint_id, path))


@router.operation(
    "POST",
    "/{checkpoint_id}/restore",
    wrong_state(
        f"{examples.JOB} cannot be restored: it is running; pause or cancel it before a restore"
    ),
    invalid("resources.workers", 0, "must be at least 1"),
    summary="Restore a checkpoint",
    answer="The job is queued; its next attempt starts from this checkpoint.",
    status=202,
    reads=body(Changes, {"unchanged": {}, "on more workers": examples.CHANGES}, required=False),
)
async def restore_checkpoint(
    services: ServicesDep, checkpoint_id: CheckpointId, request: Request
) -> Job:
    """Starts a new attempt of the checkpoint's job from there, as it was or on other resources. The
    job must not be running."""
    wanted = await read_json(request, Changes)
    return await services.checkpoints.restore(
        checkpoint_id, resources=wanted.resources, parallelism=wanted.parallelism
    )
