"""Work that users see: curves, output, and a load on devices, drawn in blocks of steps."""

from abc import abstractmethod
from typing import Literal

from trainhall.cluster.agent.shim.failure_cause import RankExit
from trainhall.cluster.simulator.ranks import Fate, Group, Rank, Work
from trainhall.cluster.simulator.workload.gpu import Load
from trainhall.cluster.simulator.workload.packages import packages_of

_LOG_TAIL = 4096
_CONTEXT = Load(0.0, 0.06, 0.5 * 2**30)
"""Load of a rank that is up and has nothing to do yet."""
CLOCK_SECONDS = 1e-3
"""Tolerance of a step's end: clocks are read in microseconds."""


class ShownWork(Work):
    takes_blocks = True

    @abstractmethod
    def load(self, rank: int) -> Load:
        """Return the present load of a rank on its device."""

    def write(
        self, text: str, rank: int = 0, stream: Literal["stdout", "stderr"] = "stdout"
    ) -> None:
        self.group.ranks[rank].spool.write(text, stream)

    def report_packages(self) -> None:
        self.group.record("packages", packages_of(self.group.launch))

    @property
    def fate(self) -> tuple[Rank, Fate] | None:
        """Return the fate that comes first, and whose it is."""
        rank = min(self.group.ranks.values(), key=lambda rank: rank.steps_left)
        return None if rank.fate is None or rank.steps_left <= 0 else (rank, rank.fate)


def load_of(rank: Rank) -> Load:
    group: Group | None = rank.group
    if group is None or not isinstance(group.work, ShownWork):
        return _CONTEXT
    load = group.work.load(rank.number)
    # A collective whose peers are gone spins in its kernel, and draws little.
    return Load(100.0, 0.16, load.memory) if group.is_broken else load


KILLED = RankExit("was ended by SIGKILL (the host ran out of memory)", signal=9, memory_kills=True)


def failed(words: str, traceback: str, exception: str | None = None) -> RankExit:
    """Return the end of a rank that left with an error, or an `exception` that it reported."""
    return RankExit(words, exception, exit_code=1, log_tail=traceback[-_LOG_TAIL:])
