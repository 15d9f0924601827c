"""Work of the ranks of one attempt over time, on all of its hosts together.

    ranks of every host come up → they meet → steps, saves, evaluations → an end on every host

Hosts ask it nothing: it writes into their ranks' spools and ends them. It is driven by `advance`
alone, and says with `due` when the coordinator would next hear of more than metrics. Times are
seconds since the epoch.
"""

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from trainhall.cluster.agent.shim import failure_cause
from trainhall.cluster.simulator.spool import Spool
from trainhall.cluster.simulator.workload.gpu import Load
from trainhall.training.link.failure import Failure
from trainhall.training.link.launch import Command, Launch
from trainhall.training.link.status import Outcome

_LOG_TAIL = 4096
_CONTEXT = Load(0.0, 0.06, 0.5 * 2**30)
"""Load of a rank that is up and has nothing to do yet."""


@dataclass(frozen=True)
class Fate:
    """Fault of an attempt, if its ranks get that far."""

    kind: Literal["killed", "out of memory", "diverges", "error"]
    step: int
    """Counted from where the attempt starts."""
    rank: int = 0


class HostRanks(Protocol):
    """An attempt's ranks on one host."""

    launch: Launch
    gradients: int
    spools: dict[int, Spool]

    @property
    def asked(self) -> Command:
        """The highest command that they were given."""

    @property
    def alive(self) -> bool:
        """No end is known yet."""

    def end(self, outcome: Outcome, now: float, failure: Failure | None = None) -> None:
        """Record the end of its processes."""


class Work(ABC):
    """Work of ranks after they have joined."""

    def __init__(self, group: "Group") -> None:
        self.group = group

    @property
    @abstractmethod
    def due(self) -> float:
        """Return when it next saves or ends, as far as known."""

    @abstractmethod
    def progress(self, now: float) -> None:
        """Work until `now`, or until the group ends."""

    @abstractmethod
    def load(self, rank: int) -> Load:
        """Return the load of a rank on its device."""


@dataclass
class Group:
    """The ranks of one attempt: they meet, work and end together."""

    launch: Launch
    """Launch of the host that came first; only properties common to all hosts count."""
    begin: Callable[["Group", float], Work]
    chance: random.Random = field(repr=False)
    fate: Fate | None = None
    hosts: dict[int, HostRanks] = field(default_factory=dict)
    """By node rank, those whose ranks are up."""
    names: dict[int, str] = field(default_factory=dict)
    """Names of these hosts."""
    meets_at: float = math.inf
    """When all ranks have found each other."""
    work: Work | None = None

    def join(self, host: HostRanks, name: str, now: float) -> None:
        """The ranks of a host are up."""
        self.hosts[host.launch.node_rank] = host
        self.names[host.launch.node_rank] = name
        if len(self.hosts) == self.launch.num_nodes:
            self.meets_at = now + self.chance.uniform(0.4, 1.2)

    @property
    def whole(self) -> bool:
        """All ranks of all hosts are up and alive."""
        return len(self.hosts) == self.launch.num_nodes and all(
            host.alive for host in self.hosts.values()
        )

    @property
    def over(self) -> bool:
        return bool(self.hosts) and not any(host.alive for host in self.hosts.values())

    @property
    def due(self) -> float:
        if not self.whole:
            return math.inf
        return self.meets_at if self.work is None else self.work.due

    def advance(self, now: float) -> None:
        """Do what there was to do until `now`."""
        if self.whole and now >= self.meets_at:
            if self.work is None:
                self.work = self.begin(self, self.meets_at)
            self.work.progress(now)
        elif not self.whole and self.work is None:
            for host in list(self.hosts.values()):
                if host.alive and host.asked is Command.PAUSE:
                    # It would wait for its peers for ever.
                    host.end(Outcome.PAUSED, now)

    def load(self, rank: int) -> Load:
        """Return the present load of a rank on its device."""
        if self.work is None:
            return _CONTEXT
        load = self.work.load(rank)
        # A collective whose peers are gone spins in its kernel, and draws little.
        return load if self.whole else Load(100.0, 0.16, load.memory)

    # -- for those who work ----------------------------------------------------------------------

    @property
    def asked(self) -> Command:
        """The highest command that any host was given: all ranks agree on it."""
        return max(host.asked for host in self.hosts.values())

    @property
    def gradients(self) -> int:
        """The newest request for gradients that any host was given."""
        return max(host.gradients for host in self.hosts.values())

    def ranks(self) -> list[int]:
        return sorted(rank for host in self.hosts.values() for rank in host.spools)

    def spool(self, rank: int) -> Spool:
        return self._host_of(rank).spools[rank]

    def end(self, outcome: Outcome, now: float) -> None:
        """All ranks leave together."""
        for host in self.hosts.values():
            host.end(outcome, now)

    def fail(self, now: float, rank: int, failure: Failure) -> None:
        """One rank fails: its host ends the others there, and those of other hosts hang."""
        self._host_of(rank).end(Outcome.FAILED, now, failure)

    def _host_of(self, rank: int) -> HostRanks:
        return next(host for host in self.hosts.values() if rank in host.spools)


def killed(rank: int) -> Failure:
    """By the kernel."""
    message = f"rank {rank} was ended by SIGKILL (the host ran out of memory)"
    return _failure(rank, message, failure_cause.RankExit(signal=9, memory_kills=True))


def raised(rank: int, kind: str, message: str, traceback: str) -> Failure:
    """Return the failure for an exception that a rank reported before it left."""
    end = failure_cause.RankExit(
        message, exception=kind, exit_code=1, log_tail=traceback[-_LOG_TAIL:]
    )
    return _failure(rank, f"rank {rank} failed: {kind}: {message}", end)


def crashed(rank: int, words: str, traceback: str) -> Failure:
    """A script that left with an error."""
    end = failure_cause.RankExit(words, exit_code=1, log_tail=traceback[-_LOG_TAIL:])
    return _failure(rank, f"rank {rank} ended with exit code 1: {words}", end)


def _failure(rank: int, message: str, end: failure_cause.RankExit) -> Failure:
    """Return the failure as the shim of a real host reports it."""
    classified = failure_cause.classify_failure(end)
    return Failure(
        rank=rank,
        exit_code=end.exit_code,
        signal=end.signal,
        message=message,
        log_tail=end.log_tail,
        cause=classified.cause,
        evidence=classified.evidence,
    )
