"""Messages between agents and the coordinator about the files that jobs write.

Below `/api/v1/agent/jobs/{job}`; each request may be repeated:

    GET  /attempts/{attempt}/outputs?rank=R             what is stored, and the limits → `Stored`
    POST /attempts/{attempt}/outputs/received           how much of contents is here → `Received`
    PUT  /attempts/{attempt}/outputs/contents/{sha256}?offset=N&size=S   the rest of it → 204
    POST /attempts/{attempt}/outputs/contents           small contents, whole → `Taken`
    POST /attempts/{attempt}/outputs                    names for contents → `Committed`
    GET  /outputs/contents/{sha256}                     bytes

Small contents go together: a request for each costs far more than its bytes. Such a body is an
`Offer` as one line of JSON, and then the bytes of all its contents one behind the other.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from trainhall.cluster.wire.batches import split_items
from trainhall.cluster.wire.protocol import first_problem

MAX_ITEMS = 1000
"""Most files of one request."""
SMALL_BYTES = 64 * 1024
"""Largest content that is sent together with others."""
MAX_TOGETHER_BYTES = 4 * 1024 * 1024
"""Size limit of the contents of one request. Both sides hold them in memory."""
MAX_TOGETHER_BODY = MAX_TOGETHER_BYTES + 128 * MAX_ITEMS
MAX_SIZE = 2**62
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, Field(min_length=1, max_length=1024)]
Size = Annotated[int, Field(ge=0, le=MAX_SIZE)]
Rank = Annotated[int, Field(ge=0, lt=2**31)]


class _Message(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)


class File(_Message):
    """One file of a job."""

    path: Name
    """As `wire.output_names` writes it."""
    size: Size
    sha256: Sha256
    modified_at: AwareDatetime


class StoredFile(File):
    rank: int
    """Lowest rank of the host that wrote it."""


class Stored(_Message):
    """Files of a job as one of its hosts is to see them."""

    files: list[StoredFile]
    """Each name once: the host's own file, else that of the lowest rank."""
    max_file_bytes: int
    max_bytes: int
    """Limit of all files of the job together."""
    used: int
    """Bytes of all that are stored."""


class Content(_Message):
    sha256: Sha256
    size: Size


class Offer(_Message):
    contents: Annotated[list[Content], Field(max_length=MAX_ITEMS)]


class Received(_Message):
    offsets: list[int | None]
    """For each content of the offer how many bytes came so far; None: it is here whole."""


class Taken(_Message):
    statuses: list[int]
    """For each content of the request a status as over HTTP: 204, it is here whole; 413, it is
    beyond the limit for one file; 422, its bytes are not what was announced."""


Why = Literal["file_limit", "job_limit", "files_limit", "name", "unreadable", "link", "changing"]


class Skipped(_Message):
    """A file that is not stored."""

    path: Annotated[str, Field(min_length=1, max_length=4096)]
    size: Size
    why: Why


class Commit(_Message):
    """Changes of a host's files since its last commit."""

    rank: Rank
    """The lowest one of the host."""
    files: Annotated[list[File], Field(max_length=MAX_ITEMS)] = []
    removed: Annotated[list[Name], Field(max_length=MAX_ITEMS)] = []
    skipped: Annotated[list[Skipped], Field(max_length=MAX_ITEMS)] = []


class Committed(_Message):
    missing: list[str]
    """Hashes of contents that are not here; their files were not taken."""
    refused: list[Skipped]
    """Files beyond a limit."""


def encode_contents(contents: Sequence[tuple[Content, bytes]]) -> bytes:
    """Encode the body of a request with several contents."""
    head = Offer(contents=[content for content, _ in contents]).model_dump_json().encode()
    return b"".join([head, b"\n", *(data for _, data in contents)])


def decode_contents(body: bytes) -> list[tuple[Content, bytes]]:
    """Return the contents of a body and their bytes, whose hashes are not checked.

    Raises:
        ValueError: it is no such body, or not a whole one, or beyond a limit.
    """
    head, _, rest = body.partition(b"\n")
    try:
        contents = Offer.model_validate_json(head).contents
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None
    if len(rest) > MAX_TOGETHER_BYTES:
        raise ValueError(f"{len(rest)} bytes: contents of at most {MAX_TOGETHER_BYTES} go together")
    return list(zip(contents, split_items(rest, [each.size for each in contents]), strict=True))
