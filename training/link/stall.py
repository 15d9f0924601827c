"""A shim's report of ranks that take no step any more; free of torch."""

from trainhall.training.link.base import LinkModel


class RankStall(LinkModel):
    """A rank among those that take no step any more."""

    rank: int
    step: int
    """The newest that it has finished."""
    parts: int
    """Finished parts of the present step."""
    activity: str
    """In words."""
    idle: float
    """Seconds without anything new of it."""
    state: str = ""
    """The state of its process, in psutil's words: `stopped`, `running`, `sleeping`,
    `disk-sleep`…"""
    busy: bool = False
    """The process uses a core."""
    waits: bool = False
    """The rank waits for the others of its next group: it delays no other."""


class Stall(LinkModel):
    """The ranks of a host take no step any more, or wait for those of another host."""

    limit: float
    """Seconds that a step may take."""
    behind: int | None
    """The rank that the others here wait for; None: nothing distinguishes it."""
    is_sure: bool = False
    """`behind` holds whatever the ranks of other hosts do: it should wait for none of them."""
    ranks: list[RankStall]
