"""A file of a job as a download: whatever is in it, it never acts as the user who looks at it."""

import io
import os
import re
from urllib.parse import quote

from fastapi.responses import FileResponse
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from trainhall.api.problems import RefusalError

BYTES = "application/octet-stream"
POLICY = "sandbox; default-src 'none'"
"""Content-Security-Policy of what a job wrote: as a page of its own it has no origin, no script and
loads nothing."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "private, no-cache",
}
# What would end the quoted name or the header, name another folder, or turn the text around.
_UNSAFE = re.compile('[\x00-\x1f\x7f-\x9f"*/:<>?\\\\|\u200e\u200f\u2028-\u202e\u2066-\u2069]')
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


def attachment(name: str) -> str:
    """Return the Content-Disposition that saves a file under a name (RFC 6266).

    Characters that no folder of a common system takes become `_`.
    """
    safe = _UNSAFE.sub("_", name).strip(". ") or "file"
    plain = safe.encode("ascii", "replace").decode().replace("?", "_").replace("%", "_")
    encoded = quote(safe, safe="", errors="replace")
    other = "" if plain == safe else f"; filename*=UTF-8''{encoded}"
    return f'attachment; filename="{plain}"{other}'


class OpenFileResponse(FileResponse):
    """The bytes of an open file, whatever its path leads to meanwhile."""

    def __init__(self, file: io.FileIO, headers: dict[str, str] | None = None) -> None:
        # Opening a descriptor's own path opens the same file again.
        path, found = f"/dev/fd/{file.fileno()}", os.fstat(file.fileno())
        super().__init__(path, headers=headers, media_type=BYTES, stat_result=found)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            await super().__call__(scope, receive, send)


class HashedFileResponse(OpenFileResponse):
    """An open file of a job as a download, whose SHA-256 is its ETag."""

    def __init__(self, file: io.FileIO, name: str, sha256: str) -> None:
        headers = {**HEADERS, "ETag": etag(sha256), "Content-Disposition": attachment(name)}
        super().__init__(file, headers)


def etag(sha256: str) -> str:
    return f'"{sha256}"'


def is_known(request: Request, sha256: str) -> bool:
    """Return whether the caller has the file already (If-None-Match)."""
    known = request.headers.get("if-none-match", "")
    return known.strip() == "*" or etag(sha256) in re.findall(r'"[^"]*"', known)


def check_range(request: Request, size: int) -> None:
    """Check the `Range` of a request; several ranges, and those that are none, are left out: such a
    request gets the whole file.

    Raises:
        RefusalError: 416, the range begins after the end.
    """
    given = Headers(scope=request.scope).get("range")
    if given is None:
        return
    found = _RANGE.fullmatch(given.replace(" ", ""))
    first, last = found.groups() if found else ("", "")
    if not (first or last) or (first and last and int(last) < int(first)):
        request.scope["headers"] = [
            each for each in request.scope["headers"] if each[0] != b"range"
        ]
    elif (int(first) if first else size - int(last) * (size > 0)) >= size:
        raise RefusalError(
            416, "range-not-satisfiable",
            f"Range: {given[:80]!r} begins after the end: the file has {size} bytes",
            headers={"Content-Range": f"bytes */{size}"},
        )  # fmt: skip
