"""Profiles of a running job's steps: the request for one, and what its ranks report of it; free of
torch.

A request reaches the ranks of a host as a file, and its number on the control page
(`link.control.Control`). All ranks begin with the same step: the first one after a step sync by
which all of them had the request.
"""

from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import Field

from trainhall.training.link.base import LinkModel

MAX_STEPS = 200
"""Most steps of one profile."""
MAX_RANKS = 1024
"""Most ranks that are named in a request."""
MAX_MESSAGE = 2000
"""Characters."""
_FOLDER = "profiles"


class ProfileRequest(LinkModel):
    """A profile of some ranks' next steps."""

    number: Annotated[int, Field(ge=1)]
    """Rises with every request of a job."""
    steps: Annotated[int, Field(ge=1, le=MAX_STEPS)]
    ranks: list[int]
    stacks: bool = False
    """Record the Python calls, too."""
    memory: bool = False
    """Record allocations of tensors, too."""


class ProfileReport(LinkModel):
    """State of a profile on one of its ranks, as a rank's event carries it."""

    number: Annotated[int, Field(ge=1)]
    rank: Annotated[int, Field(ge=0)]
    """Its number when the profile began."""
    state: Literal["started", "saved", "failed"]
    """`started` is reported by the lowest of the ranks alone; another one follows."""
    first_step: Annotated[int, Field(ge=0, lt=2**62)] | None = None
    last_step: Annotated[int, Field(ge=0, lt=2**62)] | None = None
    stall_seconds: Annotated[float, Field(ge=0)] | None = None
    """Time for which the end of the profile held up training."""
    message: Annotated[str, Field(max_length=MAX_MESSAGE)] = ""
    """Why it failed, or has fewer steps than were asked for."""


def traces_folder(outputs_path: str) -> str:
    """Return the folder of all traces within the job's working folder.

    Args:
        outputs_path: `outputs.path` of the spec, outside of which no file is an output.
    """
    return str(PurePosixPath(outputs_path) / _FOLDER)


def trace_name(outputs_path: str, number: int, rank: int) -> str:
    """Return the path of a trace within the job's working folder; as of `traces_folder`."""
    return f"{traces_folder(outputs_path)}/{number}/rank-{rank}.json.gz"
