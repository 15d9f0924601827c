"""Request bodies: bounded, of a known content type, and read before anything is done with them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from trainhall.api.params import parse_digits
from trainhall.api.problems import RefusalError, field_problems, invalid_fields
from trainhall.training.spec import MAX_SPEC_BYTES

SMALL_BYTES = 64 * 1024
"""Limit of the bodies that are no job specs."""
SMALL_DOCUMENT_BYTES = 4 * 1024
"""A job spec of this size is parsed at once: it takes some milliseconds."""
LINGER_BYTES = 16 * 1024 * 1024
LINGER_SECONDS = 2.0

Format = Literal["json", "yaml"]
FORMATS: dict[str, Format] = {
    "application/json": "json",
    "application/yaml": "yaml",
    "application/x-yaml": "yaml",
    "text/yaml": "yaml",
}
"""Content types of job specs and experiments."""

Model = TypeVar("Model", bound=BaseModel)
Result = TypeVar("Result")
Parsed = TypeVar("Parsed")


async def read_body(request: Request, limit: int) -> bytes:
    """Read the whole body of at most `limit` bytes; never hold more than that.

    Raises:
        RefusalError: 413, once it is known to be longer.
    """
    return b"".join([chunk async for chunk in bounded(request, limit)])


async def read_document(request: Request) -> tuple[bytes, Format]:
    """Read a job spec or an experiment.

    Raises:
        RefusalError: 413 or 415.
    """
    kind = FORMATS.get(media_type(request))
    if kind is None:
        raise unsupported(request, *FORMATS)
    return await read_body(request, MAX_SPEC_BYTES), kind


async def parsed(parse: Callable[[bytes, Format], Parsed], raw: bytes, kind: Format) -> Parsed:
    """Parse a document in a thread: a large one takes long enough to hold up everybody else."""
    if len(raw) <= SMALL_DOCUMENT_BYTES:
        return parse(raw, kind)
    return await asyncio.to_thread(parse, raw, kind)


async def bounded(request: Request, limit: int) -> AsyncIterator[bytes]:
    """Yield the body as it comes, up to `limit` bytes.

    Raises:
        RefusalError: 413, once it is known to be longer; 400 when it ends too early.
    """
    stream = request.stream()
    if declared_length(request) > limit:
        if request.headers.get("expect", "").lower() != "100-continue":
            await _linger(stream)
        raise _too_large(limit)
    size = 0
    try:
        async for chunk in stream:
            size += len(chunk)
            if size > limit:
                await _linger(stream)
                raise _too_large(limit)
            if chunk:
                yield chunk
    except ClientDisconnect:
        raise RefusalError(
            400, "bad-request", "the connection closed before the whole body arrived"
        ) from None


async def uploaded(request: Request, limit: int) -> AsyncIterator[bytes]:
    """Yield a file as it comes; a connection that ends early is an error, not a short file."""
    expected, size = declared_length(request), 0
    async for chunk in bounded(request, limit):
        size += len(chunk)
        yield chunk
    if expected and size != expected:
        raise RefusalError(400, "bad-request", f"the body has {size} bytes, not {expected}")


def declared_length(request: Request) -> int:
    """Return the body's length according to its header; 0 without one."""
    return parse_digits(request.headers.get("content-length", "")) or 0


async def _linger(stream: AsyncIterator[bytes]) -> None:
    """Discard some of the remaining body.

    If a connection is closed while the caller is still sending, the caller may lose the error
    reply.
    """
    left = LINGER_BYTES
    try:
        async with asyncio.timeout(LINGER_SECONDS):
            async for chunk in stream:
                left -= len(chunk)
                if left < 0:
                    return
    except (TimeoutError, ClientDisconnect):
        return


def _too_large(limit: int) -> RefusalError:
    size_text = f"{limit // (1024 * 1024)} MiB" if limit >= 1024 * 1024 else f"{limit // 1024} KiB"
    return RefusalError(
        413, "too-large", f"the body is longer than {size_text}", headers={"Connection": "close"}
    )


def media_type(request: Request) -> str:
    """Return the content type, lower-cased, without parameters; empty if there is none."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def unsupported(request: Request, *accepted: str) -> RefusalError:
    given = media_type(request)
    problem = f"content type {given!r} is not accepted" if given else "there is no content type"
    return RefusalError(
        415, "unsupported-media-type", f"{problem}; send {', '.join(accepted)}",
        headers={"Accept-Post" if request.method == "POST" else "Accept": ", ".join(accepted)},
    )  # fmt: skip


async def read_json(
    request: Request, model: type[Model], limit: int = SMALL_BYTES, *, hidden: bool = False
) -> Model:
    """Parse the body as a model; an empty body is an empty object.

    Args:
        hidden: errors show no value of it.

    Raises:
        RefusalError: 413, 415, or 422 with one problem per wrong field.
    """
    raw = await read_body(request, limit)
    if not raw.strip() and not media_type(request):
        raw = b"{}"
    elif media_type(request) != "application/json":
        raise unsupported(request, "application/json")
    try:
        return model.model_validate_json(raw or b"{}")
    except ValidationError as error:
        problems = field_problems(error.errors(include_url=False))
        if hidden:
            problems = [problem.model_copy(update={"value": None}) for problem in problems]
        raise invalid_fields(problems) from None


async def unless_disconnected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of long work, after the body was read.

    Raises:
        RefusalError: the client has closed the connection, and the work is cancelled.
    """
    task = asyncio.create_task(work)
    disconnected = asyncio.create_task(_disconnected(request))
    disconnected.add_done_callback(lambda _: task.cancel())
    try:
        return await task
    except asyncio.CancelledError:
        if not disconnected.done():
            raise
        raise RefusalError(400, "bad-request", "the connection was closed") from None
    finally:
        disconnected.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
