"""A rank's way from one group of its attempt to the next, in the same process."""

import faulthandler
import os
import sys
import time
from threading import Event, Thread

import torch

from trainhall.distributed import breakable, broken, process_group
from trainhall.distributed.environment import STORE_PREFIX, RankEnvironment
from trainhall.training.link.control import STUCK_SECONDS, Control
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.launch import Command, Launch, RankSlot
from trainhall.training.link.progress import Activity
from trainhall.training.link.progress_writer import Progress
from trainhall.training.link.status import EXIT_STUCK

LOOK_SECONDS = 0.005
"""Between two checks for a new group, by a rank that waits for one."""
WATCH_SECONDS = 0.25
FIRST_SECONDS = 30.0
"""For an activity that a rank does for the first time, instead of `STUCK_SECONDS`."""
STUCK_FACTOR = 2
"""Multiple of an activity's longest time so far after which a rank is stuck."""


class RegroupTimeoutError(RuntimeError):
    """After the loss of a rank no launch of a new group arrived in time."""


class LeaveRequested(Exception):  # noqa: N818 - control flow, no error
    """Request to end this process."""


class Membership:
    """The groups that this process belongs to, one after the other.

    Args:
        slot: this rank's in the first of them, by which its device is known.
    """

    def __init__(
        self, launch: Launch, slot: RankSlot, folder: AttemptFolder, device: torch.device
    ) -> None:
        self.since = self.generation = launch.generation
        """`since`: the generation in which this process began."""
        self._device = device
        self._identity = (slot.device_kind, slot.device_index)
        self._folder = folder
        self._control = Control(folder.control)
        self._patience = launch.spec.recovery.regroup_seconds
        self._left = Event()
        self._is_broken_off = False
        """Connections of the present group were closed here."""
        self._newest = launch
        """The newest launch that was read."""
        self._steps = 0
        self.progress = Progress()
        """The page on which this rank notes its activity."""

    def stepped(self) -> None:
        """Record that this rank has taken a step."""
        self._steps += 1

    def is_superseded(self) -> bool:
        """Return whether there is a newer group to join, or no more reason to join any."""
        return self._control.generation > self.generation or self._must_end()

    def has_lost(self) -> bool:
        """Return whether a rank of the present group is known to be gone."""
        newest = self._control.generation
        if newest > self._newest.generation:
            self._newest = read_group(self._folder, newest)
        return self._newest.broken >= self.generation

    def join(self, launch: Launch, environment: RankEnvironment) -> None:
        """Join the group.

        Raises:
            JoinError, GroupSupersededError: and whatever means lost ranks, see `broken.is_broken`.
        """
        breakable.begin()
        process_group.join(
            environment,
            device=self._device,
            namespace=f"{launch.job_id}/{launch.attempt}/{launch.generation}",
            superseded=self.is_superseded,
            has_lost=self.has_lost,
        )
        self._left, self._is_broken_off = Event(), False
        Thread(target=self._watch, args=(self._left,), name="regrouping", daemon=True).start()

    def confirm(self) -> None:
        """Raise GroupSupersededError if the group was broken off, perhaps without a failure."""
        if self._is_broken_off:
            raise process_group.GroupSupersededError("the ranks of this group must regroup")

    def break_off(self) -> None:
        """Abort whatever is under way in the present group, and fail it on its other ranks."""
        self._left.set()
        broken.break_off()

    def leave(self) -> None:
        """Be in no group any more. Nothing of this rank may refer to the present one."""
        broken.abandon()

    def next(self, why: str) -> tuple[Launch, RankEnvironment]:
        """Wait for the launch of a newer group; it, and this rank's place in it.

        Args:
            why: what became of the present group.

        Raises:
            LeaveRequested: this process has no place in it, or is to end.
            RegroupTimeoutError: none came in time.
        """
        ends = time.monotonic() + self._patience
        while self._control.generation <= self.generation:
            if self._must_end():
                raise LeaveRequested
            if time.monotonic() > ends:
                raise RegroupTimeoutError(
                    f"this rank lost others, and in {self._patience:g} s the coordinator sent no "
                    f"regroup command: {why}"
                )
            time.sleep(LOOK_SECONDS)
        launch = read_group(self._folder, self._control.generation)
        self.generation = launch.generation
        for slot in launch.ranks:
            if (slot.device_kind, slot.device_index) == self._identity:
                return launch, _environment(launch, slot)
        raise LeaveRequested

    def _must_end(self) -> bool:
        return self._control.command is Command.STOP

    def _stuck_after(self) -> float:
        longest = self.progress.longest()
        return FIRST_SECONDS if longest is None else max(STUCK_SECONDS, STUCK_FACTOR * longest)

    def _is_stepping(self) -> bool:
        """Return whether a step is under way that is not the first of the process."""
        steps = self.progress.activity in (Activity.FIRST_STEP, Activity.STEPPING)
        return steps and self.progress.longest() is not None

    def _watch(self, left: Event) -> None:
        """Break up the present group if a newer one waits and this rank is stuck in it."""
        steps, since = self._steps, time.monotonic()
        broken_off = since
        while not left.wait(WATCH_SECONDS):
            now = time.monotonic()
            if steps != self._steps:
                steps, since = self._steps, now
            elif self._control.generation > self.generation:
                stuck = self._stuck_after()
                if self._is_broken_off and self._is_stepping() and now - since > 2 * stuck:
                    _exit_stuck()
                is_stuck = now - max(since, broken_off) > stuck
                must_break = is_stuck or (self.has_lost() and not self._is_broken_off)
                if must_break and not left.is_set():
                    self._is_broken_off = True  # first, for those who see what fails then
                    broken.break_off()
                    broken_off = now


def _exit_stuck() -> None:
    """End this process, for another to take its place: its step does not end although its group is
    broken off, and what waits in `breakable` has ended. A task of the user's may wait for other
    ranks alone, or for anything else."""
    faulthandler.dump_traceback(all_threads=True)
    sys.stderr.write("a step does not end although its process group was aborted\n")
    sys.stderr.flush()
    os._exit(EXIT_STUCK)


def read_group(folder: AttemptFolder, generation: int) -> Launch:
    return Launch.model_validate_json(folder.group(generation).read_bytes())


def _environment(launch: Launch, slot: RankSlot) -> RankEnvironment:
    """Return this process's environment, and set it for whatever it starts."""
    rendezvous = launch.rendezvous
    assert rendezvous is not None  # the shim knows it before it publishes the launch
    os.environ |= {
        "RANK": str(slot.rank),
        "ROLE_RANK": str(slot.rank),
        "LOCAL_RANK": str(slot.local_rank),
        "GROUP_RANK": str(launch.node_rank),
        "WORLD_SIZE": str(launch.world_size),
        "ROLE_WORLD_SIZE": str(launch.world_size),
        "LOCAL_WORLD_SIZE": str(len(launch.ranks)),
        "GROUP_WORLD_SIZE": str(launch.num_nodes),
        "MASTER_ADDR": rendezvous.address,
        "MASTER_PORT": str(rendezvous.port),
        STORE_PREFIX: rendezvous.prefix,
    }
    return RankEnvironment.read(os.environ)
