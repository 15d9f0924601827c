"""Follows TensorBoard's event files of an attempt, in threads, beside its other spools."""

import time
from collections.abc import Callable

from trainhall.cluster.agent import threads
from trainhall.cluster.agent.coordinator_link.http_api import Shipping, Source
from trainhall.cluster.agent.event_files.tail import EventFileTail
from trainhall.cluster.agent.os_support.accounts import Owner, acting_as
from trainhall.cluster.agent.shipping.spools import EventShipper, FileShipper, MetricShipper
from trainhall.cluster.wire.writers import event_file_writer
from trainhall.training.event_log import EventLogger
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.frames import EVENT_FILES
from trainhall.training.link.launch import Launch

logger = EventLogger(__name__)

POLL_SECONDS = 2.0
"""Between two polls: writers keep values back for longer."""
SHARE = 5
"""One of so many seconds is spent on a large backlog, or a large tree of folders."""
TRIES = 5
"""Failures until a job ends without the rest."""


class EventFileFollower:
    """
    Args:
        owner: as whom the files are touched; None: as this process.
    """

    def __init__(self, folder: AttemptFolder, launch: Launch, owner: Owner | None) -> None:
        self._folder, self._launch, self._owner = folder, launch, owner
        with acting_as(owner):
            self._tail = EventFileTail.open(folder, launch)
        self._due = time.monotonic()
        self._tries = 0
        self._has_spools = False
        self.is_done = self._tail is None
        """Nothing can follow."""

    def is_due(self, ended: bool) -> bool:
        """Return whether to `follow` now."""
        return not self.is_done and (ended or time.monotonic() >= self._due)

    async def follow(self, ended: Callable[[], bool]) -> None:
        """Read what is new; once the ranks have ended, all that is left."""
        began, is_last, more = time.monotonic(), ended(), False
        try:
            more = await threads.finish(self._poll, is_last)
        except Exception as error:
            # A full disk, say: what was written is still there for another try.
            logger.warning("event_files_not_read", path=self._folder.path, error=error)
            self._tries += is_last
            more = self._tries < TRIES
        self.is_done = is_last and not more
        now = time.monotonic()
        self._due = now + max(0.0 if more else POLL_SECONDS, (SHARE - 1) * (now - began))

    def new_spools(self, api: Shipping) -> list[FileShipper]:
        """Return what ships the values, once there are any."""
        with acting_as(self._owner):
            found = [self._folder.file_metrics, self._folder.file_events]
            if self._tail is None or self._has_spools or not any(p.exists() for p in found):
                return []
        self._has_spools = True
        (rank, generation), launch = self._tail.writer, self._launch
        name = event_file_writer(launch.job_id, launch.attempt, generation, rank)
        source = Source(launch.job_id, launch.attempt, rank, name, generation)
        metrics = MetricShipper(source, self._folder.file_metrics, api, owner=self._owner)
        events = EventShipper(source, self._folder.file_events, api, owner=self._owner)
        metrics.name, events.name = f"{EVENT_FILES}metrics", f"{EVENT_FILES}events"
        return [metrics, events]

    def _poll(self, is_last: bool) -> bool:
        assert self._tail is not None
        with acting_as(self._owner):
            return self._tail.poll(ended=is_last)
