"""The lock of a job's environment: what the first host resolved, and all others install."""

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

MAX_LOCK_BYTES = 4 * 2**20
_PACKAGE = re.compile(r"^[A-Za-z0-9][\w.-]*(?:\[[\w., -]*\])?\s*(?:==|@)", re.ASCII | re.MULTILINE)


class EnvironmentLock(BaseModel):
    """Exact versions, with hashes, for one version of Python on one kind of host."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    python: Annotated[str, Field(max_length=16)]
    """Version of Python, such as 3.12."""
    platform: Annotated[str, Field(max_length=64)]
    """Kind of host, such as linux-x86_64."""
    torch: Literal["host", "lock"]
    """The host's own torch, or one among the packages."""
    image: Annotated[str, Field(max_length=1024)] | None = None
    """Image with its digest; it has all packages. None: hosts install them."""
    requirements: Annotated[str, Field(max_length=MAX_LOCK_BYTES)]
    """In the format of a requirements file; empty: no packages."""
    options: Annotated[list[Annotated[str, Field(max_length=4096)]], Field(max_length=64)] = []
    """Indexes that the job's own files name, as options of uv. They may hold passwords: they are
    for hosts alone."""

    @property
    def packages(self) -> int:
        """Number of packages."""
        return len(_PACKAGE.findall(self.requirements))
