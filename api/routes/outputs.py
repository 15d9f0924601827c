"""/outputs: list and download the files that jobs have written."""

import asyncio
import os
from typing import Annotated

from fastapi import Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from trainhall.api.downloads import archive, files
from trainhall.api.login.services import ServicesDep
from trainhall.api.openapi.describe import Operations
from trainhall.api.params import Cursor, JobId, Limit
from trainhall.api.problems import RefusalError
from trainhall.cluster.errors import NotFoundError
from trainhall.cluster.outputs.listing import OutputFilter
from trainhall.cluster.outputs.views import OutputPage
from trainhall.cluster.wire.output_names import MAX_NAME_BYTES

router = Operations(prefix="/outputs", tags=["outputs"])

_MAX_RANK = 2**31 - 1
_Rank = Annotated[
    int | None,
    Query(
        ge=0,
        le=_MAX_RANK,
        description="Files of the host whose lowest rank this is. Default: those of all hosts; of "
        "a path that several have, the file of the lowest rank.",
    ),
]
_NO_FILE = RefusalError(404, "not-found", "there is no output 'results/best.csv' of job 'digits'")
_PAST_END = RefusalError(
    416, "range-not-satisfiable", "Range: 'bytes=99-' begins after the end: the file has 12 bytes"
)
_FILE_HEADERS = {
    "ETag": {"description": "The SHA-256, quoted.", "schema": {"type": "string"}},
    "Content-Disposition": {
        "description": "`attachment`: no browser shows it as a page.", "schema": {"type": "string"},
    },
}  # fmt: skip
_CONTENT = {"schema": {"type": "string", "format": "binary"}, "example": "(the bytes)"}
_TAR = "application/x-tar"


@router.operation(
    "GET",
    "/jobs/{job_id}.tar",
    summary="Download all outputs of a job",
    also={200: {"description": "A tar of all files.", "content": {_TAR: _CONTENT}}},
    response_class=Response,
)
async def download_outputs(
    services: ServicesDep, job_id: JobId, rank: _Rank = None
) -> StreamingResponse:
    """All lie in a folder with the job's id. The same files make the same bytes.

    The archive is made while it is sent. If a file that it still has to send is replaced or
    deleted, the connection breaks.
    """
    found = await services.outputs.contents(job_id, rank)
    members = [
        archive.Member(f"{job_id}/{os.fsdecode(path)}", each.size, each.modified_at, content)
        for each, path, content in found
    ]
    headers = {
        **files.HEADERS,
        "Content-Disposition": files.attachment(f"{job_id}.tar"),
        "Content-Length": str(await asyncio.to_thread(archive.archive_size, members)),
    }
    return StreamingResponse(archive.archive(members), media_type=_TAR, headers=headers)


@router.operation(
    "GET", "/jobs/{job_id}", summary="List a job's outputs", answer="A page of files."
)
async def list_outputs(
    services: ServicesDep,
    job_id: JobId,
    rank: _Rank = None,
    folder: Annotated[
        str,
        Query(
            max_length=MAX_NAME_BYTES,
            description="Only files below this folder.",
            examples=["media"],
        ),
    ] = "",
    find: Annotated[
        str,
        Query(
            max_length=256,
            description="Only files whose paths have all these words, in any order and case.",
            examples=["best csv"],
        ),
    ] = "",
    nested: Annotated[
        bool,
        Query(
            description="Files of folders in the folder too. `false`: only its own, after "
            "`folders`, which are the folders in it with the totals of their files."
        ),
    ] = True,
    limit: Limit = 1000,
    cursor: Cursor = None,
) -> OutputPage:
    """Lists the files that the job has written, ordered by path. The first page has `totals`."""
    wanted = OutputFilter(rank, folder, find)
    return await services.outputs.page(job_id, wanted, is_nested=nested, limit=limit, cursor=cursor)


@router.operation(
    "GET",
    "/jobs/{job_id}/files/{path:path}",
    _NO_FILE,
    _PAST_END,
    summary="Download an output of a job",
    also={
        200: {
            "description": "The content of the file.",
            "headers": _FILE_HEADERS,
            "content": {files.BYTES: _CONTENT},
        },
        206: {
            "description": "The bytes of the range.",
            "headers": _FILE_HEADERS,
            "content": {files.BYTES: _CONTENT},
        },
        304: {"description": "It is the one that `If-None-Match` names."},
    },
    response_class=Response,
)
async def download_output(
    services: ServicesDep,
    request: Request,
    job_id: JobId,
    path: Annotated[
        str, Path(description="The path, as in the list.", examples=["results/best.csv"])
    ],
    rank: _Rank = None,
) -> Response:
    """A single range of bytes is served. Whatever the file is, it comes as bytes to be saved: HTML
    or SVG of a job never acts as whoever looks at it."""
    output, content = await services.outputs.find(job_id, path, rank)
    if files.is_known(request, output.sha256):
        headers = {**files.HEADERS, "ETag": files.etag(output.sha256)}
        return Response(status_code=304, headers=headers)
    files.check_range(request, output.size)
    try:
        opened = await asyncio.to_thread(content.open, "rb", buffering=0)
    except FileNotFoundError:  # it was replaced or deleted just now
        raise NotFoundError("output", path[:160]) from None
    name = path.rpartition("/")[2]
    return files.HashedFileResponse(opened, name, output.sha256)
