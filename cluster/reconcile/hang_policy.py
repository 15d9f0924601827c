"""A hang over several hosts: each reports its own ranks, together they show which one lags behind.

A host whose ranks wait for those of another looks as hung as the other. So nothing is decided
before every host of the attempt reports that its ranks make no progress: one whose rank still
evaluates, saves or reads reports nothing, and the others wait for it.
"""

from collections.abc import Iterable

from trainhall.cluster.snapshot.model import HostFacts
from trainhall.training.link.failure import Cause, Failure
from trainhall.training.link.stall import RankStall, Stall

_STOPPED = "stopped"
"""State of a process that got SIGSTOP, as psutil names it."""


def hang_of(hosts: Iterable[HostFacts], generation: int) -> Failure | None:
    """Return the failure of an attempt whose ranks on all hosts make no progress.

    Args:
        hosts: those on which it has processes.
        generation: of the attempt. Ranks of an earlier one waited for a host that was lost.
    """
    stalls: list[tuple[str, Stall]] = []
    for host in hosts:
        report = host.report
        if report is None or report.stall is None or report.generation != generation:
            return None
        stalls.append((host.node_name, report.stall))
    if not stalls:
        return None
    # Ranks that wait for others, as a group regroups, delay none.
    named = [(node, rank) for node, stall in stalls for rank in stall.ranks if not rank.waits]
    if not named:
        return None
    node, behind = _behind(named)
    limit = max(stall.limit for _, stall in stalls)
    hang = f"hang: no host's ranks took a step within {limit:.3g} s"
    if behind is None:
        return Failure(
            message=f"{hang}; no rank is behind the others, suspect the network between them",
            cause=Cause.HANG,
            evidence=hang,
        )
    why = "; its process is stopped (state T)" if behind.state == _STOPPED else ""
    return Failure(
        rank=behind.rank,
        node=node,
        message=f"{hang}; rank {behind.rank} (node {node}) is behind, {behind.activity} after step "
        f"{behind.step}{why}",
        cause=Cause.HANG,
        evidence=hang,
        step=max(rank.step for _, rank in named),
    )


def _behind(named: list[tuple[str, RankStall]]) -> tuple[str, RankStall | None]:
    stopped = [pair for pair in named if pair[1].state == _STOPPED]
    if stopped:
        return stopped[0]
    first = min(named, key=lambda pair: _position(pair[1]))
    same = [pair for pair in named if _position(pair[1]) == _position(first[1])]
    if len(same) == 1:
        return first
    busy = [pair for pair in same if pair[1].busy]
    return busy[0] if len(busy) == 1 else ("", None)


def _position(rank: RankStall) -> tuple[int, int]:
    return (rank.step, rank.parts)
