"""Interactive jobs: devices that are held for people who work beside the ranks."""

from typing import Annotated

from pydantic import Field

from trainhall.training.spec.base import SpecModel

MODULE = "trainhall.training.process.interactive"
"""Program of each rank; it waits for the end."""


class InteractiveSpec(SpecModel):
    """Devices to work on by `trainhall exec` and `forward` (docs/inside.md), in place of a task or
    script."""

    idle_seconds: Annotated[float, Field(ge=1, le=30 * 86400)] = 1800.0
    """The job completes when it had no session for so long: neither a command nor a forwarded port
    beside any of its ranks."""
