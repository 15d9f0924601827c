"""Limits of a project: what its members may ask for."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from trainhall.documented import Documented


class ProjectLimits(Documented, BaseModel):
    """Limits of a project; null: none."""

    model_config = ConfigDict(extra="forbid")

    priority: Annotated[int, Field(strict=True, ge=-1_000_000, le=1_000_000)] | None = None
    """Highest `priority` of its jobs."""
    devices: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] | None = None
    """Devices that it holds at once."""
    paths: (
        Annotated[
            list[Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^/[^\x00]*$")]],
            Field(max_length=64),
        ]
        | None
    ) = None
    """Folders under which `checkpoint.path` and other paths of hosts may lie."""
