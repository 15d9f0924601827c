"""The coordinator's agent interface over HTTP, with two kinds of failure: try again, or do not."""

import asyncio
import hashlib
import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import httpx
from pydantic import BaseModel

from trainhall.cluster.agent.coordinator_link.file_upload import (
    LEAST_BYTES,
    BrokenUploadError,
    FileUploads,
)
from trainhall.cluster.agent.coordinator_link.trust import Trust
from trainhall.cluster.agent.options import AgentOptions, JoinRefusedError, ProtocolMismatchError
from trainhall.cluster.agent.os_support.accounts import Owner, acting_as
from trainhall.cluster.wire.data_sets import DataReport
from trainhall.cluster.wire.environment_lock import EnvironmentLock
from trainhall.cluster.wire.outputs import (
    Commit,
    Committed,
    Content,
    Offer,
    Received,
    Stored,
    Taken,
    encode_contents,
)
from trainhall.cluster.wire.protocol import (
    Acked,
    AttemptToken,
    JoinReply,
    JoinRequest,
    LogAcked,
    PinnedCommit,
    Secrets,
    Verified,
)
from trainhall.training.link.regular_file import open_regular
from trainhall.training.link.secrets.api_access import ApiAccess

CONNECT_SECONDS = 5.0
TIMEOUT = httpx.Timeout(30.0, connect=CONNECT_SECONDS)
DISK_SECONDS = 1800.0
_DISK_TIMEOUT = httpx.Timeout(DISK_SECONDS, connect=CONNECT_SECONDS)
"""Time for the coordinator's disk to take a file, or to read a whole checkpoint. Generous, since
a timeout means that everything is sent again. `_KEEPALIVE` notices a dead host."""
CHUNK_BYTES = 1024 * 1024
_KEEPALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4))
        if hasattr(socket, name)
    ),
]
"""While a reply is awaited: after 10 s the other host is probed every 5 s, four times. While a
file is sent, TCP itself retransmits for about 15 minutes."""

_LATER = {401, 403, 408, 425, 429}
"""With 5xx: the request is right, its time is not. A revoked credential ends the connection,
which is dealt with there."""


class UnavailableError(Exception):
    """No answer, or one that says to try again later."""


class StorageFullError(UnavailableError):
    """The coordinator's disk is full: one to clear by hand, most often."""


class RefusedError(Exception):
    """The coordinator understood the request and does not want it."""

    def __init__(self, status: int, detail: str, expected: int | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.expected = expected
        """Offset to resume from, when something before the data sent is missing."""


@dataclass(frozen=True)
class Source:
    """Attempt or host whose spools are shipped."""

    job_id: str
    attempt: int
    rank: int
    writer: str
    generation: int
    """In which the writer began, or the first that wrote this output."""


class Uploading(Protocol):
    """Interface to the checkpoint store; tests have their own."""

    async def put_file(
        self,
        job_id: str,
        name: str,
        path: str,
        file: Path,
        sha256: str,
        owner: Owner | None = None,
    ) -> None: ...

    async def commit(self, job_id: str, name: str) -> None: ...


class OutputUploading(Protocol):
    """Interface to the files that jobs write; tests have their own."""

    async def stored_outputs(self, job_id: str, attempt: int, rank: int) -> Stored: ...

    async def received_outputs(
        self, job_id: str, attempt: int, contents: list[Content]
    ) -> list[int | None]: ...

    async def put_output(
        self, job_id: str, attempt: int, content: Content, file: BinaryIO, offset: int
    ) -> None: ...

    async def put_outputs(
        self, job_id: str, attempt: int, contents: Sequence[tuple[Content, bytes]]
    ) -> list[int]: ...

    async def commit_outputs(self, job_id: str, attempt: int, changes: Commit) -> Committed: ...


class Shipping(Uploading, Protocol):
    """Interface that spools are shipped to; tests have their own."""

    async def send_metrics(self, source: Source, frames: bytes) -> int:
        """Send metrics; return the newest sequence that is committed."""

    async def send_events(self, source: Source, lines: bytes) -> int:
        """Send events; return the newest sequence that is committed."""

    async def send_logs(self, source: Source, stream: str, offset: int, data: bytes) -> int:
        """Send logs; return the offset that is wanted next."""


class AttemptApi(Shipping, OutputUploading, Protocol):
    """Interface that all of an attempt is shipped to."""


class CoordinatorApi:
    def __init__(self, options: AgentOptions, trust: Trust | None = None) -> None:
        self._options = options
        self._trust = trust or Trust(options)
        self._url = options.url
        self.credential = ""
        # Proxies of the environment are for the world outside, not for a coordinator next door.
        wire = httpx.AsyncHTTPTransport(
            verify=self._trust.context, trust_env=False, socket_options=_KEEPALIVE
        )
        self._http = httpx.AsyncClient(timeout=TIMEOUT, trust_env=False, transport=wire)
        self._uploads = FileUploads(CONNECT_SECONDS, DISK_SECONDS, _KEEPALIVE)

    async def close(self) -> None:
        self._uploads.close()
        await self._http.aclose()

    async def join(self, request: JoinRequest) -> JoinReply:
        """Exchange a join token for the node's credential.

        Raises:
            UnavailableError: no answer; try again.
            JoinRefusedError: the token is not accepted.
            ProtocolMismatchError: the coordinator runs another version.
        """
        try:
            content = await self._request(
                "POST",
                "/join",
                content=request.model_dump_json().encode(),
                headers={"Content-Type": "application/json"},
            )
        except RefusedError as error:
            if error.status == HTTPStatus.UPGRADE_REQUIRED:
                raise ProtocolMismatchError(error.detail) from None
            raise JoinRefusedError(
                f"the coordinator at {self._url} refuses to let this host join: {error.detail}"
            ) from None
        return JoinReply.model_validate_json(content)

    async def send_metrics(self, source: Source, frames: bytes) -> int:
        content = await self._send(source, "metrics", frames, writer=source.writer)
        return Acked.model_validate_json(content).sequence

    async def send_events(self, source: Source, lines: bytes) -> int:
        content = await self._send(source, "events", lines, writer=source.writer)
        return Acked.model_validate_json(content).sequence

    async def send_logs(self, source: Source, stream: str, offset: int, data: bytes) -> int:
        content = await self._send(
            source, "logs", data, rank=source.rank, stream=stream, offset=offset
        )
        return LogAcked.model_validate_json(content).next_offset

    async def api_access(self, job_id: str, attempt: int) -> ApiAccess:
        """Ask for a token with which an attempt uses the API."""
        content = await self._request("POST", f"/jobs/{job_id}/attempts/{attempt}/token")
        return ApiAccess(
            url=self._options.coordinator.rstrip("/"),
            token=AttemptToken.model_validate_json(content).token,
            tls_ca=self._trust.fingerprint,
        )

    async def secrets(self, job_id: str, attempt: int) -> Mapping[str, str]:
        """Ask for the secrets of an attempt, by name."""
        content = await self._request("POST", f"/jobs/{job_id}/attempts/{attempt}/secrets")
        return Secrets.model_validate_json(content).values

    async def get_commit(self, job_id: str, attempt: int) -> str | None:
        """Return the commit that a job's code in git is fixed to; None: none yet."""
        content = await self._request("GET", f"/jobs/{job_id}/attempts/{attempt}/commit")
        return PinnedCommit.model_validate_json(content).commit if content else None

    async def put_commit(self, job_id: str, attempt: int, commit: str) -> str:
        """Send a commit; returns the job's, which is another one if that came first."""
        content = await self._request(
            "PUT",
            f"/jobs/{job_id}/attempts/{attempt}/commit",
            content=PinnedCommit(commit=commit).model_dump_json().encode(),
            headers={"Content-Type": "application/json"},
        )
        return PinnedCommit.model_validate_json(content).commit

    async def get_environment(self, job_id: str, attempt: int) -> EnvironmentLock | None:
        """Return the lock of a job's environment; None: no host has made one yet."""
        content = await self._request("GET", f"/jobs/{job_id}/attempts/{attempt}/environment")
        return EnvironmentLock.model_validate_json(content) if content else None

    async def put_environment(
        self, job_id: str, attempt: int, lock: EnvironmentLock
    ) -> EnvironmentLock:
        """Send a lock; returns the job's, which is another one if that came first."""
        content = await self._request(
            "PUT",
            f"/jobs/{job_id}/attempts/{attempt}/environment",
            content=lock.model_dump_json().encode(),
            headers={"Content-Type": "application/json"},
        )
        return EnvironmentLock.model_validate_json(content)

    async def put_data(self, report: DataReport, job_id: str, attempt: int) -> None:
        """Send what the data sets of an attempt are on this host."""
        await self._request(
            "PUT",
            f"/jobs/{job_id}/attempts/{attempt}/data",
            content=report.model_dump_json().encode(),
            headers={"Content-Type": "application/json"},
        )

    async def put_file(
        self,
        job_id: str,
        name: str,
        path: str,
        file: Path,
        sha256: str,
        owner: Owner | None = None,
    ) -> None:
        """Send a file of a checkpoint.

        Args:
            owner: as whom it is read; None: as this process.
        """
        opened = await asyncio.to_thread(_open, file, owner)
        with opened:
            await self._put(job_id, name, path, opened, sha256)

    async def _put(self, job_id: str, name: str, path: str, file: BinaryIO, sha256: str) -> None:
        size = os.fstat(file.fileno()).st_size
        where = f"/jobs/{job_id}/checkpoints/{name}/files/{path}"
        await self._upload(where, file, 0, size, {"sha256": sha256})

    async def commit(self, job_id: str, name: str) -> None:
        path = f"/jobs/{job_id}/checkpoints/{name}/commit"
        await self._request("POST", path, timeout=_DISK_TIMEOUT)

    async def verify(self, job_id: str, name: str) -> list[str]:
        """Ask the coordinator to read its own copy of a checkpoint; returns the problems found."""
        path = f"/jobs/{job_id}/checkpoints/{name}/verify"
        content = await self._request("POST", path, timeout=_DISK_TIMEOUT)
        return Verified.model_validate_json(content).problems

    async def get_file(self, job_id: str, name: str, path: str, to: Path) -> tuple[int, str]:
        """Fetch a file of an uploaded checkpoint, durably; returns its size and SHA-256."""
        return await self._fetch(f"/jobs/{job_id}/checkpoints/{name}/files/{path}", to)

    async def get_code(self, sha256: str, to: Path) -> tuple[int, str]:
        """Fetch uploaded code; returns its size and its SHA-256 as it came."""
        return await self._fetch(f"/code/{sha256}", to)

    async def stored_outputs(self, job_id: str, attempt: int, rank: int) -> Stored:
        """Ask for the files of a job, as a host with this lowest rank is to see them."""
        path = f"/jobs/{job_id}/attempts/{attempt}/outputs"
        content = await self._request("GET", path, params={"rank": rank})
        return Stored.model_validate_json(content)

    async def received_outputs(
        self, job_id: str, attempt: int, contents: list[Content]
    ) -> list[int | None]:
        """Ask how many bytes of each content have arrived; None: all."""
        path = f"/jobs/{job_id}/attempts/{attempt}/outputs/received"
        content = await self._post(path, Offer(contents=contents))
        return Received.model_validate_json(content).offsets

    async def put_output(
        self, job_id: str, attempt: int, content: Content, file: BinaryIO, offset: int
    ) -> None:
        """Send a content from `offset` on."""
        where = f"/jobs/{job_id}/attempts/{attempt}/outputs/contents/{content.sha256}"
        left = content.size - offset
        params = {"size": content.size, "offset": offset}
        await self._upload(where, file, offset, left, params)

    async def put_outputs(
        self, job_id: str, attempt: int, contents: Sequence[tuple[Content, bytes]]
    ) -> list[int]:
        """Send small contents in one request; returns the status of each, as of `Taken`."""
        path = f"/jobs/{job_id}/attempts/{attempt}/outputs/contents"
        body = encode_contents(contents)
        reply = await self._request("POST", path, content=body, timeout=_DISK_TIMEOUT)
        return Taken.model_validate_json(reply).statuses

    async def commit_outputs(self, job_id: str, attempt: int, changes: Commit) -> Committed:
        """Commit changes of the files of a host."""
        path = f"/jobs/{job_id}/attempts/{attempt}/outputs"
        return Committed.model_validate_json(await self._post(path, changes))

    async def get_output(self, job_id: str, sha256: str, to: Path) -> tuple[int, str]:
        """Fetch a content, durably; returns its size and SHA-256."""
        return await self._fetch(f"/jobs/{job_id}/outputs/contents/{sha256}", to)

    async def _post(self, path: str, message: BaseModel) -> bytes:
        return await self._request(
            "POST",
            path,
            content=message.model_dump_json().encode(),
            headers={"Content-Type": "application/json"},
            timeout=_DISK_TIMEOUT,
        )

    async def _fetch(self, path: str, to: Path) -> tuple[int, str]:
        self._trust.refresh()
        digest, size = hashlib.sha256(), 0
        url = self._url + path
        try:
            async with self._http.stream("GET", url, headers=self._headers()) as answer:
                if not answer.is_success:
                    await answer.aread()
                    _check(answer)
                with await asyncio.to_thread(to.open, "wb") as file:
                    async for chunk in answer.aiter_bytes(CHUNK_BYTES):
                        digest.update(chunk)
                        size += len(chunk)
                        await asyncio.to_thread(file.write, chunk)
                    file.flush()
                    await asyncio.to_thread(os.fsync, file.fileno())
        except httpx.TransportError as error:
            raise UnavailableError(self._trust.describe(error)) from None
        return size, digest.hexdigest()

    async def _send(self, source: Source, what: str, content: bytes, **params: Any) -> bytes:
        path = f"/jobs/{source.job_id}/attempts/{source.attempt}/{what}"
        params["generation"] = source.generation
        return await self._request("POST", path, content=content, params=params)

    async def _upload(
        self, path: str, file: BinaryIO, offset: int, size: int, params: Mapping[str, str | int]
    ) -> None:
        """Send `size` bytes of a file from `offset` on."""
        url = httpx.URL(self._url + path, params=dict(params))
        if url.scheme != "http" or size < LEAST_BYTES:
            await asyncio.to_thread(file.seek, offset)
            await self._request(
                "PUT",
                path,
                content=_chunks(file, size),
                headers={"Content-Length": str(size)},
                params=params,
                timeout=_DISK_TIMEOUT,
            )
            return
        try:
            _check(await self._uploads.put(url, self._headers(), file, offset, size))
        except BrokenUploadError as error:
            raise UnavailableError(str(error)) from None

    async def _request(self, method: str, path: str, **options: Any) -> bytes:
        self._trust.refresh()
        headers = self._headers() | options.pop("headers", {})
        try:
            answer = await self._http.request(method, self._url + path, headers=headers, **options)
        except httpx.TransportError as error:
            raise UnavailableError(self._trust.describe(error)) from None
        _check(answer)
        return answer.content

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.credential}"} if self.credential else {}


def _open(file: Path, owner: Owner | None) -> BinaryIO:
    with acting_as(owner):
        return open(open_regular(file), "rb")


async def _chunks(file: BinaryIO, size: int) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(file.read, min(CHUNK_BYTES, size)):
        size -= len(chunk)
        yield chunk


def _check(answer: httpx.Response) -> None:
    if answer.is_success:
        return
    detail, expected = _problem(answer)
    joining = answer.request.url.path.endswith("/join")
    is_throttled = answer.status_code == HTTPStatus.TOO_MANY_REQUESTS
    if joining and answer.status_code < 500 and not is_throttled:
        raise RefusedError(answer.status_code, detail, expected)
    raise failure_of(answer.status_code, detail, expected)


def failure_of(
    status: int, detail: str, expected: int | None = None
) -> UnavailableError | RefusedError:
    """Return the error that a response status stands for."""
    if status == HTTPStatus.INSUFFICIENT_STORAGE:
        return StorageFullError(f"{status}: {detail}")
    if status >= 500 or status in _LATER:
        return UnavailableError(f"{status}: {detail}")
    return RefusedError(status, detail, expected)


def _problem(answer: httpx.Response) -> tuple[str, int | None]:
    """Return `detail` and `expected` of problem details (RFC 9457), else what there is."""
    try:
        problem = answer.json()
        expected = problem.get("expected")
        return str(problem["detail"]), expected if isinstance(expected, int) else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return answer.reason_phrase or f"status {answer.status_code}", None
