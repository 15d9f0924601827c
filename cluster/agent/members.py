"""The rank processes of an attempt on one host, from one generation to the next."""

import os
import time
from dataclasses import dataclass

from trainhall.cluster.agent import ranks
from trainhall.training.link import (
    EXIT_NOT_REGROUPED,
    AttemptFolder,
    Failure,
    Launch,
    RankPlace,
    RankState,
    Rendezvous,
)


@dataclass
class Member:
    """A process, or one that is to be started. It is known by its device."""

    place: RankPlace
    state: RankState

    @property
    def device(self) -> tuple[str, int]:
        return self.place.device_kind, self.place.device_index

    @property
    def is_alive(self) -> bool:
        return self.state.pid is not None and self.state.finished_at is None


class Members:
    """Who takes part here.

    Args:
        fork: run built-in tasks in copies of this process.
    """

    def __init__(self, folder: AttemptFolder, launch: Launch, *, fork: bool) -> None:
        self._folder = folder
        self._launch = launch
        self._fork = fork
        self._rendezvous: Rendezvous | None = None
        self.listed = [_new(launch, place) for place in launch.ranks]
        """Those of the present launch, in its order."""
        self._leaving: list[Member] = []

    @property
    def states(self) -> list[RankState]:
        return [member.state for member in self.listed]

    @property
    def leaving(self) -> list[Member]:
        """Live ones that the present launch does not list any more."""
        return [member for member in self._leaving if member.is_alive]

    def alive(self) -> list[Member]:
        return [m for m in (*self.listed, *self._leaving) if m.is_alive]

    def regroup(self, launch: Launch) -> None:
        """Go on with a launch of a later generation: live processes keep their devices."""
        alive = {member.device: member for member in self.alive()}
        self._launch = launch
        self.listed = []
        for place in launch.ranks:
            member = alive.pop((place.device_kind, place.device_index), None)
            if member is None:
                member = _new(launch, place)
            else:
                began = member.state.began_as
                began = member.state.rank if began is None else began
                state = member.state.model_copy(update={"rank": place.rank, "began_as": began})
                member = Member(place, state)
            self.listed.append(member)
        self._leaving = list(alive.values())

    def renew(self, member: Member) -> None:
        """Have another process take the place of one that has ended."""
        assert self._rendezvous is not None  # without one none was started
        self.listed[self.listed.index(member)] = _new(self._launch, member.place)
        self.start(self._rendezvous)

    def start(self, rendezvous: Rendezvous) -> None:
        """Start those that are listed and have no process."""
        self._rendezvous = rendezvous
        for member in self.listed:
            if member.state.pid is None:
                member.state.started_at = time.time()
                member.state.pid = ranks.start(
                    self._folder, self._launch, member.place, rendezvous, fork=self._fork
                )

    def ended(self, pid: int, status: int) -> Member | None:
        """Note the end of a process, as `waitpid` tells it; whose it was."""
        for member in (*self.listed, *self._leaving):
            if member.state.pid == pid:
                code = os.waitstatus_to_exitcode(status)
                member.state.finished_at = time.time()
                member.state.exit_code = code if code >= 0 else None
                member.state.signal = -code if code < 0 else None
                return member
        return None


def can_be_replaced(launch: Launch, rank: RankState, failure: Failure, *, alone: bool) -> bool:
    """Whether others of the attempt may wait for a rank that has failed to be replaced.

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


def _new(launch: Launch, place: RankPlace) -> Member:
    return Member(place, RankState(rank=place.rank, generation=launch.generation))
