"""The status of a shim and its ranks, and how ranks end."""

from enum import StrEnum
from typing import Literal

from pydantic import Field

from trainhall.training.link.base import LinkModel
from trainhall.training.link.failure import Failure
from trainhall.training.link.launch import Command, Rendezvous
from trainhall.training.link.stall import Stall

# Exit codes of a rank of a built-in task. Any other is a failure.
EXIT_COMPLETED = 0
EXIT_PAUSED = 83
"""The rank stopped at an agreed step after a checkpoint was committed."""
EXIT_STOPPED = 84
"""The rank stopped at an agreed step and saved nothing."""
EXIT_NOT_REGROUPED = 85
"""The rank lost others and got no launch to regroup with in time: a failure, and no cause."""
EXIT_STUCK = 86
"""A step of the rank did not end although its group was broken off."""


class RankState(LinkModel):
    rank: int
    generation: int = 1
    """In which the process began."""
    began_as: int | None = None
    """The rank that the process began as, where that is not `rank`. With the generation it names
    its files, and itself as a writer."""
    pid: int | None = None
    started_at: float | None = None
    finished_at: float | None = None
    exit_code: int | None = None
    """Set when the rank left by itself."""
    signal: int | None = None
    """Set when a signal ended the rank."""

    @property
    def writer(self) -> tuple[int, int]:
        """Rank and generation that the process began with."""
        return (self.rank if self.began_as is None else self.began_as), self.generation


class Outcome(StrEnum):
    """The end of an attempt on one host."""

    COMPLETED = "completed"
    PAUSED = "paused"
    STOPPED = "stopped"
    FAILED = "failed"


class FailedRank(LinkModel):
    """A rank that has failed while others of its attempt wait for it to be replaced."""

    rank: int
    device_kind: Literal["cpu", "cuda"]
    device_index: int
    generation: int
    """In which it failed."""
    failure: Failure


class ShimStatus(LinkModel):
    """The shim's view of the attempt. `outcome` is set once, when no process of the attempt is left
    here."""

    job_id: str
    attempt: int
    generation: int
    phase: Literal["starting", "running", "stopping", "exited"]
    command: Command = Command.RUN
    ranks: list[RankState] = Field(default_factory=list)
    failed_ranks: list[FailedRank] = Field(default_factory=list)
    """Failed ranks of the present generation, where the others wait for their replacement."""
    stall: Stall | None = None
    """In an attempt on several hosts: the ranks here take no step any more."""
    leaving: list[int] = Field(default_factory=list)
    """Devices that the launch does not list any more, whose processes have yet to end."""
    rendezvous: Rendezvous | None = None
    outcome: Outcome | None = None
    failure: Failure | None = None
    isolated: bool = False
    """The shim began to end the ranks because the coordinator was unreachable for long."""
