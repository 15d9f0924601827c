"""The rank processes of an attempt on one host, from one generation to the next."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from trainhall.training.link.failure import Failure
from trainhall.training.link.launch import Launch, RankSlot, Rendezvous
from trainhall.training.link.status import EXIT_COMPLETED, EXIT_NOT_REGROUPED, FailedRank, RankState


@dataclass
class RankEntry:
    """A process, or one that is to be started. It is known by its device."""

    slot: RankSlot
    state: RankState

    @property
    def device(self) -> tuple[str, int]:
        return self.slot.device_kind, self.slot.device_index

    @property
    def is_alive(self) -> bool:
        return self.state.pid is not None and self.state.finished_at is None


class RankTable:
    """Ranks that take part on this host.

    Args:
        start: begins the process of a rank, and returns its pid.
        now: the time of day, in seconds since the epoch.
    """

    def __init__(
        self,
        launch: Launch,
        start: Callable[[Launch, RankSlot, Rendezvous], int],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._launch = launch
        self._start = start
        self._now = now
        self._rendezvous: Rendezvous | None = None
        self.current = [_new(launch, slot) for slot in launch.ranks]
        """Entries of the present launch, in its order."""
        self._leaving: list[RankEntry] = []

    @property
    def states(self) -> list[RankState]:
        return [member.state for member in self.current]

    @property
    def leaving(self) -> list[RankEntry]:
        """Live ones that the present launch does not list any more."""
        return [member for member in self._leaving if member.is_alive]

    @property
    def have_completed(self) -> bool:
        """Return whether a rank completed the job. Others of the present launch that did not
        complete it in the same group came too late: they find no peers."""
        return any(state.exit_code == EXIT_COMPLETED for state in self.states)

    def alive(self) -> list[RankEntry]:
        return [m for m in (*self.current, *self._leaving) if m.is_alive]

    def regroup(self, launch: Launch) -> None:
        """Continue with a launch of a later generation: live processes keep their devices."""
        alive = {member.device: member for member in self.alive()}
        self._launch = launch
        self.current = []
        for slot in launch.ranks:
            member = alive.pop((slot.device_kind, slot.device_index), None)
            if member is None:
                member = _new(launch, slot)
            else:
                began = member.state.began_as
                began = member.state.rank if began is None else began
                state = member.state.model_copy(update={"rank": slot.rank, "began_as": began})
                member = RankEntry(slot, state)
            self.current.append(member)
        self._leaving = list(alive.values())

    def renew(self, member: RankEntry) -> None:
        """Replace a process that has ended with a new one."""
        assert self._rendezvous is not None  # without one none was started
        self.current[self.current.index(member)] = _new(self._launch, member.slot)
        self.start(self._rendezvous)

    def start(self, rendezvous: Rendezvous) -> None:
        """Start those that are listed and have no process."""
        self._rendezvous = rendezvous
        for member in self.current:
            if member.state.pid is None:
                member.state.started_at = self._now()
                member.state.pid = self._start(self._launch, member.slot, rendezvous)

    def ended(self, pid: int, code: int) -> RankEntry | None:
        """Note the end of a process; whose it was.

        Args:
            code: its exit code, or below zero the signal that ended it.
        """
        for member in (*self.current, *self._leaving):
            if member.state.pid == pid:
                member.state.finished_at = self._now()
                member.state.exit_code = code if code >= 0 else None
                member.state.signal = -code if code < 0 else None
                return member
        return None


def can_be_replaced(launch: Launch, rank: RankState, failure: Failure, *, alone: bool) -> bool:
    """Return whether others of the attempt may wait for a failed rank to be replaced.

    Args:
        alone: no other is left on this host.
    """
    return (
        launch.in_place
        and launch.spec.recovery.regroup_seconds > 0
        and not failure.final
        and rank.exit_code != EXIT_NOT_REGROUPED
        and (launch.num_nodes > 1 or not alone)
    )


def failed_rank(launch: Launch, member: RankEntry, failure: Failure) -> FailedRank:
    """Return the report of a failed rank that the others wait to have replaced."""
    return FailedRank(
        rank=member.state.rank,
        device_kind=member.slot.device_kind,
        device_index=member.slot.device_index,
        generation=launch.generation,
        failure=failure,
    )


def _new(launch: Launch, slot: RankSlot) -> RankEntry:
    return RankEntry(slot, RankState(rank=slot.rank, generation=launch.generation))
