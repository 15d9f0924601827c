"""Consequences for ranks of a host that make no progress.

An attempt on one host ends, or continues without the rank that lags behind where its ranks regroup
in place. With several hosts, each reports its own ranks, unless one of them lags behind whatever
the others do.
"""

import math
import signal
from collections.abc import Mapping

import psutil

from trainhall.cluster.agent.os_support import processes
from trainhall.cluster.agent.shim.hang import detector, stack_dumps
from trainhall.training.link.failure import Failure
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.launch import Launch
from trainhall.training.link.stall import Stall


class HangPolicy:
    """Checks the ranks of one host, and ends one that the others can continue without."""

    def __init__(self, folder: AttemptFolder, launch: Launch) -> None:
        self._folder = folder
        self._detector: detector.HangDetector | None = None
        floor = detector.hang_floor(launch.spec)
        if floor is not None:
            regrouping = launch.spec.recovery.regroup_seconds + floor if launch.in_place else None
            compiles = detector.may_compile(launch.spec)
            self._detector = detector.HangDetector(
                folder.path, floor, regrouping, compiles=compiles
            )
        self.stall: Stall | None = None
        """Stall of ranks here, until all hosts have reported who lags behind."""
        self.due = math.inf if self._detector is None else 0.0
        """When (monotonic) of the next poll; infinite: the ranks are not watched."""
        self._ended: tuple[int, Failure] | None = None

    def reset(self, due: float) -> None:
        """Forgive what the ranks do not do until a time (monotonic): they wait for one to be
        replaced, or find out that one is gone."""
        self.stall = None
        if self._detector is not None:
            self._detector.reset()
            self.due = due

    def poll(
        self, now: float, pids: Mapping[int, int], launch: Launch, *, seconds_left: float
    ) -> Failure | None:
        """Check the live ranks (rank → pid), and end one that the others can continue without.

        Args:
            seconds_left: until the ranks have to be dead, which a stack dump must not hold up.

        Returns:
            Why the attempt has to end because of them, if it has.
        """
        if self._detector is None or now < self.due:
            return None
        self.due = now + self._detector.pause
        stall = self._detector.poll(now, pids)
        if stall is None:
            self.stall = None
        elif self.stall is None:  # a new one
            self.stall = stall if launch.num_nodes > 1 else None
            return self._act_on(stall, now, pids, launch, seconds_left=seconds_left)
        return None

    def _act_on(
        self,
        stall: Stall,
        now: float,
        pids: Mapping[int, int],
        launch: Launch,
        *,
        seconds_left: float,
    ) -> Failure | None:
        """Take the consequence of a stall; see `poll`."""
        if all(rank.waits for rank in stall.ranks):
            return None  # on one host for those that are to start
        if seconds_left >= stack_dumps.LONGEST_SECONDS:
            stack_dumps.save(self._folder, pids, _stopped(stall))
        behind = pids.get(stall.behind) if stall.behind is not None else None
        if behind is not None and launch.in_place and (launch.num_nodes == 1 or stall.is_sure):
            # The others can continue without it once it is gone; its end counts as the hang it was.
            self._end(now, behind, detector.failure_of(self._folder, stall))
        elif launch.num_nodes == 1:
            return detector.failure_of(self._folder, stall)
        return None

    def failure_of_killed(self, pid: int | None) -> Failure | None:
        """Return the failure of a process that was ended here."""
        return self._ended[1] if self._ended is not None and self._ended[0] == pid else None

    def _end(self, now: float, pid: int, failure: Failure) -> None:
        self._ended = (pid, failure)
        processes.send_groups([pid], signal.SIGKILL)
        self.reset(now)


def _stopped(stall: Stall) -> set[int]:
    return {rank.rank for rank in stall.ranks if rank.state == psutil.STATUS_STOPPED}
