"""`status.json`, by which the shim reports its state to the agent."""

import contextlib
import time
from pathlib import Path

from trainhall.cluster.agent.shim import folder_ipc
from trainhall.training.fencing import FencingToken
from trainhall.training.link.failure import Failure
from trainhall.training.link.folder import AttemptFolder, replace_json
from trainhall.training.link.status import Outcome, ShimStatus

RETRY_SECONDS = 1.0
"""Before another try to write the status where there was no space for it."""


class StatusFile:
    """A full disk must not end the ranks: a status that could not be written is tried again."""

    def __init__(self, folder: AttemptFolder, doorbell: Path | None) -> None:
        self._folder = folder
        self._doorbell = doorbell
        self._unwritten: ShimStatus | None = None

    @property
    def is_written(self) -> bool:
        return self._unwritten is None

    def publish(self, status: ShimStatus) -> None:
        """Replace the file and ring the agent's doorbell."""
        self._unwritten = status
        self.flush()

    def flush(self) -> None:
        """Write the newest status, unless that is done."""
        if self._unwritten is not None:
            with contextlib.suppress(OSError):
                replace_json(self._folder.status, self._unwritten)
                self._unwritten = None
                folder_ipc.ring_doorbell(self._doorbell)

    def publish_end(self, status: ShimStatus) -> None:
        """Publish the last status, however long the disk stays full."""
        self.publish(status)
        while not self.is_written and self._folder.path.exists():
            time.sleep(RETRY_SECONDS)
            self.flush()

    def publish_failure(self, failure: Failure) -> None:
        """Publish the end of an attempt whose launch is unknown."""
        token = self._folder.token or FencingToken(self._folder.path.name, 1, 1)
        self.publish_end(
            ShimStatus(**token._asdict(), phase="exited", outcome=Outcome.FAILED, failure=failure)
        )
