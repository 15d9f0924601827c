"""Messages between agents and the coordinator about the files that jobs write.

Below `/api/v1/agent/jobs/{job}`; each request may be repeated:

    GET  /attempts/{attempt}/outputs?rank=R             what is stored, and the limits → `Stored`
    POST /attempts/{attempt}/outputs/received           how much of contents is here → `Received`
    PUT  /attempts/{attempt}/outputs/contents/{sha256}?offset=N&size=S   the rest of it → 204
    POST /attempts/{attempt}/outputs                    names for contents → `Committed`
    GET  /outputs/contents/{sha256}                     bytes
"""

from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

MAX_ITEMS = 1000
"""Most files of one request."""
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
