"""/training/code: code, uploaded once and named by its SHA-256; and /training/jobs/ID/code."""

from functools import partial
from typing import Annotated

from fastapi import Depends, Path, Query, Request, Response
from fastapi.responses import FileResponse
from pydantic import AfterValidator

from trainhall.api.bodies import media_type, unsupported, uploaded
from trainhall.api.limits import TURN_SECONDS, caller_of, limits_of
from trainhall.api.login.services import ServicesDep
from trainhall.api.openapi import examples
from trainhall.api.openapi.describe import Operations
from trainhall.api.params import JobId, checked_id, one_line_or_none
from trainhall.api.problems import RefusalError, invalid, shown
from trainhall.cluster.jobs.code_store import describe_full_store
from trainhall.cluster.jobs.source.code_files import CodeDifference, JobCode
from trainhall.cluster.jobs.views import Code
from trainhall.cluster.wire.code_archive import MAX_ARCHIVE_BYTES
from trainhall.training.spec.job import SHA256

router = Operations(prefix="/training/code", tags=["jobs"])

MEDIA_TYPE = "application/octet-stream"
_BODY = {
    "requestBody": {
        "required": True,
        "description": "A tar of the folder, plain or compressed with gzip, at most 64 MiB. "
        "Unpacked it has at most 256 MiB in 20,000 files and folders.",
        "content": {
            MEDIA_TYPE: {
                "schema": {"type": "string", "format": "binary"},
                "example": "(the bytes of the archive)",
            }
        },
    }
}
_NO_CODE = RefusalError(404, "not-found", f"there is no code {examples.SHA256!r}")
_TOO_LARGE = RefusalError(413, "too-large", "the body is longer than 64 MiB")
_TOO_MANY = RefusalError(
    429, "too-many-requests",
    "10.0.0.7 has 4 uploads of code on their way, and may have no more; try again when one has "
    "ended",
)  # fmt: skip
_STORE_FULL = RefusalError(507, "storage-full", describe_full_store(8 * 1024**3))
_NOT_A_TAR = RefusalError(
    415, "unsupported-media-type",
    f"content type 'text/plain' is not accepted; send {MEDIA_TYPE}",
)  # fmt: skip
_HOSTILE = invalid("body", None, "the archive cannot be used: ../x points outside the folder")


async def _sha256(
    sha256: Annotated[str, Path(description="The SHA-256 of the archive, in hexadecimal digits.",
                                json_schema_extra={"pattern": f"^{SHA256.pattern}$"},
                                examples=[examples.SHA256])],
) -> str:  # fmt: skip
    if not SHA256.fullmatch(sha256):
        detail = f"there is no code {shown(sha256)!r}: its name is 64 lower-case hexadecimal digits"
        raise RefusalError(404, "not-found", detail)
    return sha256


Sha256 = Annotated[str, Depends(_sha256)]


@router.operation(
    "PUT",
    "/{sha256}",
    _NO_CODE,
    _TOO_LARGE,
    _NOT_A_TAR,
    _HOSTILE,
    _STORE_FULL,
    _TOO_MANY,
    summary="Upload code",
    answer="The project had it already.",
    openapi_extra=_BODY,
    also={
        201: {
            "description": "Stored for the project.",
            "model": Code,
        }
    },
    response_model=Code,
)
async def put_code(
    request: Request,
    services: ServicesDep,
    sha256: Sha256,
    project: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=128,
            description="Project that it is for. Default: as for a job without one.",
            examples=["vision"],
        ),
        AfterValidator(one_line_or_none),
    ] = None,
) -> Response:
    """A job names it under `code`; what no job names is removed after an hour.

    The archive is checked before it is kept: paths that lead out of the folder, special
    files, names that come twice and too much of anything are refused.
    """
    if media_type(request) not in ("", MEDIA_TYPE):
        raise unsupported(request, MEDIA_TYPE)
    async with limits_of(request).uploads.turn(caller_of(request), TURN_SECONDS):
        view, created = await services.code.put(
            sha256, uploaded(request, MAX_ARCHIVE_BYTES), project
        )
    content = view.model_dump_json()
    return Response(content, 201 if created else 200, media_type="application/json")


@router.operation(
    "GET", "/{sha256}", _NO_CODE, summary="Check whether code is stored", answer="It is stored."
)
async def get_code(services: ServicesDep, sha256: Sha256) -> Code:
    """Describes the upload with this SHA-256, if one of the caller's projects has it."""
    return await services.code.get(sha256)


jobs_router = Operations(prefix="/training/jobs", tags=["jobs"])

_ARCHIVE = {
    "description": "The archive, as it was uploaded.",
    "content": {
        MEDIA_TYPE: {
            "schema": {"type": "string", "format": "binary"},
            "example": "(the bytes of the archive)",
        }
    },
}
_NO_ARCHIVE = RefusalError(
    404, "not-found", "there is no uploaded code of job '3f2a9c51d07b'"
)  # fmt: skip


@jobs_router.operation(
    "GET", "/{job_id}/code", summary="List the files of a job's code", answer="The files."
)
async def list_job_code(services: ServicesDep, job_id: JobId) -> JobCode:
    """Lists the files that were uploaded for a job, with their hashes; none for a job without
    uploaded code."""
    return await services.job_code.files(job_id)


@jobs_router.operation(
    "GET",
    "/{job_id}/code.tar",
    _NO_ARCHIVE,
    summary="Download a job's code",
    also={200: _ARCHIVE},
    response_class=FileResponse,
)
async def download_job_code(services: ServicesDep, job_id: JobId) -> FileResponse:
    """The archive as it was uploaded, plain or gzipped: always a download, never shown."""
    return FileResponse(
        await services.job_code.archive(job_id),
        media_type=MEDIA_TYPE,
        filename=f"{job_id}.tar",
        headers={
            "Content-Security-Policy": "sandbox; default-src 'none'",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        },
    )


@jobs_router.operation(
    "GET",
    "/{job_id}/code/diff",
    summary="Compare the code of two jobs",
    answer="The files that differ.",
)
async def compare_job_code(
    services: ServicesDep,
    job_id: JobId,
    other: Annotated[
        str,
        Query(description="Id of the other job.", examples=["91bc40d7e6a2"]),
        AfterValidator(partial(checked_id, "job")),
    ],
) -> CodeDifference:
    """Files that were added, removed or changed from this job to the other, with unified diffs of
    text files."""
    return await services.job_code.compare(job_id, other)
