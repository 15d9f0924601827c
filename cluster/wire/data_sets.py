"""Report of a host on the data sets of an attempt."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from trainhall.training.spec.problems import DATA_NAME, HEX_SHA256
from trainhall.training.spec.world.data import MAX_DATA_SETS

MAX_REPORT_BYTES = 64 * 1024


class Fingerprint(BaseModel):
    """State of a data set when the ranks of an attempt began."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: Annotated[str, Field(pattern=DATA_NAME)]
    kind: Literal["contents", "listing"]
    """Hashed parts: contents, or names, sizes and times of modification."""
    sha256: Annotated[str, Field(pattern=HEX_SHA256)]
    """For one file its own SHA-256, if its contents were hashed."""
    bytes: Annotated[int, Field(ge=0, lt=2**63)]
    """Size of the files."""
    files: Annotated[int, Field(ge=0, lt=2**31)]
    is_partial: bool = False
    """There are more files than were looked at."""


class DataReport(BaseModel):
    """Data sets of an attempt on one host."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    items: Annotated[list[Fingerprint], Field(max_length=MAX_DATA_SETS)]
