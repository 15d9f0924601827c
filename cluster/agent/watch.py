"""What becomes of ranks of a host that take no step any more.

An attempt on one host ends with them, or goes on without the one that is behind where its ranks
regroup in place. Of several hosts, each tells the coordinator of its own ranks, unless one of them
is behind whatever the others do.
"""

import math
import signal
from collections.abc import Mapping

import psutil

from trainhall.cluster.agent import hang, processes, stacks
from trainhall.training.link import AttemptFolder, Failure, Launch
from trainhall.training.stall import Stall


class Watch:
    """Looks at the ranks of one host, and ends one that the others can go on without."""

    def __init__(self, folder: AttemptFolder, launch: Launch) -> None:
        self._folder = folder
        self._looks: hang.HangWatch | None = None
        floor = hang.floor_of(launch.spec)
        if floor is not None:
            regrouping = launch.spec.recovery.regroup_seconds + floor if launch.in_place else None
            compiles = hang.may_compile(launch.spec)
            self._looks = hang.HangWatch(folder.path, floor, regrouping, compiles=compiles)
        self.stall: Stall | None = None
        """Of ranks here, while other hosts are to tell who is behind."""
        self._ended: tuple[int, Failure] | None = None

    @property
    def due(self) -> float:
        """When (monotonic) to look again."""
        return math.inf if self._looks is None else self._looks.due

    def begin_anew(self, due: float) -> None:
        """As `hang.HangWatch.begin_anew`."""
        self.stall = None
        if self._looks is not None:
            self._looks.begin_anew(due)

    def look(self, now: float, pids: Mapping[int, int], launch: Launch) -> Failure | None:
        """Judge the live ranks (rank → pid); what the attempt ends with because of them, if it is
        to end."""
        if self._looks is None or now < self._looks.due:
            return None
        stall, told = self._looks.look(now, pids), self.stall
        if stall is None or told is not None:
            self.stall = told if stall is not None else None
            return None
        self.stall = stall if launch.num_nodes > 1 else None
        if all(rank.waits for rank in stall.ranks):
            return None  # on one host for those that are to start
        stacks.save(self._folder, pids, _stopped(stall))
        behind = pids.get(stall.behind) if stall.behind is not None else None
        if behind is not None and launch.in_place and (launch.num_nodes == 1 or stall.is_sure):
            # The others can go on without it once it is gone; its end is told as the hang it was.
            self._end(now, behind, hang.failure_of(self._folder, stall))
        elif launch.num_nodes == 1:
            return hang.failure_of(self._folder, stall)
        return None

    def told_of(self, pid: int | None) -> Failure | None:
        """What is told of the end of a process that was ended here."""
        return self._ended[1] if self._ended is not None and self._ended[0] == pid else None

    def _end(self, now: float, pid: int, failure: Failure) -> None:
        self._ended = (pid, failure)
        processes.send_groups([pid], signal.SIGKILL)
        self.begin_anew(now)


def _stopped(stall: Stall) -> set[int]:
    return {rank.rank for rank in stall.ranks if rank.state == psutil.STATUS_STOPPED}
