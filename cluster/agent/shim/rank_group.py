"""The attempt's ranks on this host and the rendezvous where they meet, from launch to launch."""

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from trainhall.cluster.agent.containers.processes import ContainerProcesses
from trainhall.cluster.agent.shim import rank_process
from trainhall.cluster.agent.shim.masked_output import MaskedOutput
from trainhall.cluster.agent.shim.rank_table import RankEntry, RankTable
from trainhall.cluster.agent.shim.rendezvous import RendezvousHandle, open_rendezvous
from trainhall.cluster.agent.shim.tracking import Tracking
from trainhall.training.link.control import Control
from trainhall.training.link.failure import Cause, Failure
from trainhall.training.link.folder import AttemptFolder, replace_json
from trainhall.training.link.launch import Launch, Rendezvous
from trainhall.training.link.secrets.masking import Masker


def not_started(error: OSError) -> Failure:
    """Return the failure of ranks for which this host has no space, process or port left."""
    message = f"the ranks cannot be started: {error.strerror or error}"
    return Failure(message=message, cause=Cause.NOT_STARTED)


class RankGroup:
    """
    Args:
        tracking: served to the ranks; None: it is not.
        fork: built-in tasks run in forks of this process.
        secrets: variables of the ranks.
    """

    def __init__(
        self,
        folder: AttemptFolder,
        launch: Launch,
        tracking: Tracking | None,
        *,
        fork: bool,
        secrets: Mapping[str, str] = rank_process.NO_SECRETS,
    ) -> None:
        self._folder = folder
        self._fork = fork
        self.launch = launch
        """The newest launch that was taken up."""
        self._tracking = tracking
        self.masked = MaskedOutput(Masker(secrets.values())) if secrets else None
        """The ranks' output, where they have secrets."""
        self._container = ContainerProcesses(folder.path) if launch.container is not None else None
        start = partial(
            rank_process.start,
            folder,
            tracking=tracking,
            fork=fork,
            secrets=secrets,
            masked=self.masked,
            container=self._container,
        )
        self.table = RankTable(launch, start)
        self.has_started = False
        self._handle: RendezvousHandle | None = None
        self._retired: RendezvousHandle | None = None
        """The rendezvous on this host before another host led."""

    @property
    def rendezvous(self) -> Rendezvous | None:
        """Return the ranks' rendezvous; None before `open`."""
        return self._handle.rendezvous if self._handle is not None else None

    @property
    def waits_for(self) -> list[int]:
        """Return descriptors that become readable when a rank in a container has ended."""
        return self._container.waits_for if self._container is not None else []

    def open(self) -> Failure | None:
        """Open the first rendezvous, once the container is up; why that is not possible."""
        try:
            if self._container is not None:
                self._container.hold()
            opened = open_rendezvous(self._folder, self.launch, fork=self._fork)
            if isinstance(opened, Failure):
                return opened
            self._handle = opened
            self._publish(self.launch, opened)
        except OSError as error:
            return not_started(error)
        return None

    def regroup(self, launch: Launch) -> Failure | None:
        """Take up the launch of a later generation; live processes keep their devices.

        Returns:
            Why its ranks cannot meet.

        Raises:
            OSError: the disk is full. Nothing has changed.
        """
        current = self._handle
        assert current is not None  # or nothing would be left to regroup
        handle: RendezvousHandle | Failure = current
        if not current.serves(launch):
            handle = open_rendezvous(self._folder, launch, fork=self._fork)
        if isinstance(handle, Failure):
            return handle
        try:
            self._publish(launch, handle)
        except OSError:
            if handle is not current:
                handle.close()
            raise
        self.launch = launch
        self.table.regroup(launch)
        if handle is not current:
            self._retire(current, own_follows=handle.store_pid is not None)
        self._handle = handle
        return None

    def start(self, control: Control) -> None:
        """Start the ranks that have no process, and send the others to their new group."""
        assert self._handle is not None
        if self.launch.in_place:
            control.regroup(self.launch.generation)
        self.table.start(self._handle.rendezvous)
        self.has_started = True

    def reap(self) -> tuple[list[RankEntry], int | None]:
        """Wait for the children that have ended since the last call.

        Returns:
            The ranks among them, and the exit code of the rendezvous store if it ended.
        """
        ended: list[RankEntry] = []
        store_code = None
        for pid, code in self._container.reap() if self._container is not None else ():
            if (entry := self.table.ended(pid, code)) is not None:
                ended.append(entry)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return ended, store_code
            if pid == 0:
                return ended, store_code
            code = os.waitstatus_to_exitcode(status)
            if self._handle is not None and pid == self._handle.store_pid:
                self._handle = replace(self._handle, store_pid=None)
                store_code = code
            elif (entry := self.table.ended(pid, code)) is not None:
                ended.append(entry)
            elif self._tracking is not None:
                self._tracking.note_ended(pid)

    def close(self) -> None:
        """Let the container end, with all that is left in it."""
        if self._container is not None:
            self._container.close()

    def _publish(self, launch: Launch, handle: RendezvousHandle) -> None:
        """Write the files that the ranks of a launch look for once they know of it."""
        for slot in launch.ranks:
            self._folder.rank(slot.rank).mkdir(parents=True, exist_ok=True)
        if launch.in_place:
            published = launch.model_copy(update={"rendezvous": handle.rendezvous})
            replace_json(self._folder.group(launch.generation), published)

    def _retire(self, handle: RendezvousHandle, *, own_follows: bool) -> None:
        """Leave a rendezvous. Its store is closed once ranks meet on this host again: until then
        some may be about to leave it."""
        if not own_follows:
            self._retired = handle if handle.store_pid is not None else self._retired
            return
        for each in (handle, self._retired):
            if each is not None:
                each.close()
        self._retired = None
