"""The coordinator's side of outputs in memory: for agents' units, and behind routes."""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from fastapi import FastAPI, Request, Response

from trainhall.cluster.agent.coordinator_link.http_api import RefusedError, UnavailableError
from trainhall.cluster.wire.outputs import (
    Commit,
    Committed,
    Content,
    Offer,
    Received,
    Skipped,
    Stored,
    StoredFile,
    Taken,
    decode_contents,
)


@dataclass
class FakeOutputs:
    """Outputs of one job, whichever it is."""

    files: dict[str, StoredFile] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)
    parts: dict[str, bytes] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    breaks: list[int] = field(default_factory=list)
    """After so many bytes the next uploads break, one after the other; of small files, after so
    many, modulo how many go together."""
    refuse_with: int | None = None
    max_file_bytes: int = 2**40
    max_bytes: int = 2**40

    def read(self, name: str) -> bytes:
        return self.contents[self.files[name].sha256]

    async def stored_outputs(self, job_id: str, attempt: int, rank: int) -> Stored:
        self._note("stored")
        files = list(self.files.values())
        return Stored(
            files=files,
            max_file_bytes=self.max_file_bytes,
            max_bytes=self.max_bytes,
            used=sum(file.size for file in files),
        )

    async def received_outputs(
        self, job_id: str, attempt: int, contents: list[Content]
    ) -> list[int | None]:
        self._note("received")
        return [
            None if c.sha256 in self.contents else len(self.parts.get(c.sha256, b""))
            for c in contents
        ]

    async def put_output(
        self, job_id: str, attempt: int, content: Content, file: BinaryIO, offset: int
    ) -> None:
        file.seek(offset)
        self._take(content.sha256, content.size, offset, file.read())

    async def put_outputs(
        self, job_id: str, attempt: int, contents: Sequence[tuple[Content, bytes]]
    ) -> list[int]:
        self._note(f"put {len(contents)} files")
        taken, broken = len(contents), bool(self.breaks)
        if broken:
            taken = self.breaks.pop(0) % (taken + 1)
        statuses = []
        for content, data in contents[:taken]:
            whole = hashlib.sha256(data).hexdigest() == content.sha256
            if whole:
                self.contents[content.sha256] = data
            statuses.append(204 if whole else 422)
        if broken:
            raise UnavailableError("broken off")
        return statuses

    def _take(self, sha256: str, size: int, offset: int, data: bytes) -> None:
        self._note(f"put {offset}")
        part = self.parts.pop(sha256, b"")
        if offset != len(part):
            self.parts[sha256] = part
            raise RefusedError(409, "not where it is to be continued")
        if self.breaks:
            self.parts[sha256] = part + data[: self.breaks.pop(0)]
            raise UnavailableError("broken off")
        part += data
        if len(part) != size or hashlib.sha256(part).hexdigest() != sha256:
            raise RefusedError(422, "damaged")
        self.contents[sha256] = part

    async def commit_outputs(self, job_id: str, attempt: int, changes: Commit) -> Committed:
        self._note("commit")
        missing = {f.sha256 for f in changes.files} - set(self.contents)
        for file in changes.files:
            if file.sha256 not in missing:
                stored = StoredFile(**file.model_dump(), rank=changes.rank)
                self.files[file.path] = stored
        for name in changes.removed:
            self.files.pop(name, None)
        self.skipped += changes.skipped
        return Committed(missing=sorted(missing), refused=[])

    async def get_output(self, job_id: str, sha256: str, to: Path) -> tuple[int, str]:
        self._note("get")
        data = self.contents[sha256]
        await asyncio.to_thread(to.write_bytes, data)
        return len(data), hashlib.sha256(data).hexdigest()

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if self.refuse_with is not None:
            raise RefusedError(self.refuse_with, "refused")

    def add_routes(self, app: FastAPI, base: str) -> None:
        """Answer agents over HTTP."""
        of_attempt = base + "/jobs/{job}/attempts/{attempt}/outputs"

        async def stored(job: str, attempt: int, rank: int) -> Stored:
            return await self.stored_outputs(job, attempt, rank)

        async def received(job: str, attempt: int, offer: Offer) -> Received:
            return Received(offsets=await self.received_outputs(job, attempt, offer.contents))

        async def put(sha256: str, size: int, offset: int, request: Request) -> Response:
            self._take(sha256, size, offset, await request.body())
            return Response(status_code=204)

        async def put_small(job: str, attempt: int, request: Request) -> Taken:
            contents = decode_contents(await request.body())
            return Taken(statuses=await self.put_outputs(job, attempt, contents))

        async def commit(job: str, attempt: int, changes: Commit) -> Committed:
            return await self.commit_outputs(job, attempt, changes)

        async def get(sha256: str) -> Response:
            return Response(self.contents[sha256])

        app.add_api_route(of_attempt, stored, methods=["GET"])
        app.add_api_route(of_attempt, commit, methods=["POST"])
        app.add_api_route(of_attempt + "/received", received, methods=["POST"])
        app.add_api_route(of_attempt + "/contents", put_small, methods=["POST"])
        app.add_api_route(of_attempt + "/contents/{sha256}", put, methods=["PUT"])
        app.add_api_route(base + "/jobs/{job}/outputs/contents/{sha256}", get, methods=["GET"])
