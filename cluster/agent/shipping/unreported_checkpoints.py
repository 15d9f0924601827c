"""Committed checkpoints without an event: rank 0 was killed between the two.

What its events do not name is searched for once no process of the attempt is left. It is shipped as
every event, under a writer's name of its own; the coordinator fences it as it does all others.

Where the host never reported again, and others see the same storage, the job's next attempt
starts from what is found there, and its first host reports it in the name of the earlier one.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

from trainhall.cluster.agent.coordinator_link.http_api import Shipping, Source
from trainhall.cluster.agent.os_support.accounts import Owner, acting_as
from trainhall.cluster.agent.shipping import checkpoint_transfer
from trainhall.cluster.agent.shipping.spools import EventShipper, Upload
from trainhall.cluster.wire.writers import recovery_writer
from trainhall.training.checkpoint.format.draft import Committed, fsync_folder
from trainhall.training.checkpoint.format.errors import BadCheckpointError
from trainhall.training.checkpoint.format.manifest import read_files
from trainhall.training.checkpoint.format.names import CheckpointFolder, scan
from trainhall.training.event_log import EventLogger
from trainhall.training.link.events import RankEvent
from trainhall.training.link.launch import Launch
from trainhall.training.link.regular_file import read_regular

logger = EventLogger(__name__)

MAX_EVENTS_BYTES = 64 * 2**20
"""More events than a rank reports in years."""

MAX_STEP = 2**62
"""Largest step of any job: a folder named for a later one is not ours."""


class UnreportedShipper(EventShipper):
    """The checkpoints of an attempt that its rank 0 did not report.

    They are held in memory, so that a full disk is no obstacle: another agent finds them again.

    Args:
        event_files: lists the ranks' event files on this host, as they are at the end.
        after_step: what is not later is known.
        ready: no process of the attempt is left, and all events of rank 0 have arrived. Before that
            a checkpoint may still be reported; and an upload frees space by removing older copies.
    """

    name = "recovered"

    def __init__(
        self,
        event_files: Callable[[], list[Path]],
        launch: Launch,
        api: Shipping,
        upload: Upload | None,
        ready: Callable[[], bool],
        *,
        after_step: int = -1,
        owner: Owner | None = None,
    ) -> None:
        writer = recovery_writer(launch.job_id, launch.attempt, launch.generation)
        source = Source(launch.job_id, launch.attempt, 0, writer, launch.generation)
        super().__init__(source, Path(launch.checkpoint.folder), api, upload, owner=owner)
        self._launch = launch
        self._event_files = event_files
        self._after_step = after_step
        self._ready = ready
        self._events: bytes | None = None
        """One JSON object a line; None before the search."""

    def has_more(self) -> bool:
        return self._ready() and (self._events is None or self.offset < len(self._events))

    async def ship(self) -> bool:
        if self._events is None:
            events = await asyncio.to_thread(self._find)
            self._events = b"".join(e.model_dump_json().encode() + b"\n" for e in events)
        return await super().ship()

    def _find(self) -> list[RankEvent]:
        with acting_as(self.owner):
            return find_unreported(self._launch, self._event_files(), self._after_step)

    def _size(self) -> int:
        return len(self._events or b"")

    def _read(self, limit: int) -> bytes:
        return (self._events or b"")[self.offset : self.offset + limit]

    def position(self) -> list[int]:
        return [0, 0]

    def restore(self, position: list[int]) -> None:
        """Ship from the start: the coordinator skips what it has."""


def earlier(launch: Launch) -> Launch | None:
    """Return the attempt whose unreported checkpoints to look for on shared storage."""
    found = launch.checkpoint.unrecorded
    if found is None or launch.checkpoint.upload:
        return None
    return launch.model_copy(update={"attempt": found.attempt, "generation": found.generation})


def find_unrecorded(launch: Launch) -> list[str]:
    """Find the earlier attempt's unreported checkpoints, best first; loading verifies them."""
    before, plan = earlier(launch), launch.checkpoint
    if before is None or plan.unrecorded is None:
        return []
    found = _unreported(Path(plan.folder), before, set(), plan.unrecorded.after_step)
    return [each.path.name for each in reversed(found)]


def find_unreported(
    launch: Launch, event_files: Iterable[Path], after_step: int = -1
) -> list[RankEvent]:
    """Return the missing events: `checkpoint` for each whole one, in order of steps.

    What is not whole is reported as `not_saved`, a folder that cannot be searched as a `note`. An
    event's sequence follows from its step alone: it is the same whatever else is found, now or by
    another agent.

    Args:
        event_files: the ranks' event files, where this host has them.
        after_step: what is not later is known.
    """
    folder = Path(launch.checkpoint.folder)
    names = {name for path in event_files for name in _reported_names(path)}
    try:
        unreported = (
            _unreported(folder, launch, names, after_step) if launch.checkpoint.folder else []
        )
        if unreported:
            # The rename may not have reached the disk: what is recorded must outlast the host.
            fsync_folder(folder)
    except OSError as error:
        why = f"{folder} could not be searched for checkpoints: {error.strerror or error}"
        return [_event(0, "note", {"message": why})]
    return [_checkpoint_event(found, launch.job_id) for found in unreported]


def _checkpoint_event(found: CheckpointFolder, job_id: str) -> RankEvent:
    try:
        data = _committed(found.path, job_id).event()
    except (BadCheckpointError, OSError) as error:
        why = f"{found.path.name} was found and is not recorded: {error}"
        return _event(found.name.step, "not_saved", {"step": found.name.step, "message": why})
    logger.info("unreported_checkpoint_found", path=found.path)
    return _event(found.name.step, "checkpoint", data)


def _event(
    step: int, kind: Literal["checkpoint", "not_saved", "note"], data: dict[str, Any]
) -> RankEvent:
    return RankEvent(sequence=step + 1, time=time.time(), rank=0, kind=kind, data=data)


def _unreported(
    folder: Path, launch: Launch, reported: set[str], after_step: int
) -> list[CheckpointFolder]:
    token = (launch.attempt, launch.generation)
    return [
        found
        for found in reversed(scan(folder))
        if (found.name.attempt, found.name.generation) == token
        and found.path.name not in reported
        and after_step < found.name.step < MAX_STEP
    ]


def _reported_names(events: Path) -> set[str]:
    """Return names in whole lines; one that was cut short by the kill does not count."""
    names: set[str] = set()
    try:
        data = read_regular(events, MAX_EVENTS_BYTES)
    except OSError:  # there is none, or the job has replaced it: all are reported again
        return names
    for line in data[: data.rfind(b"\n") + 1].splitlines():
        try:
            event = json.loads(line)
            if event["kind"] == "checkpoint":
                names.add(str(event["data"]["name"]))
        except (ValueError, TypeError, KeyError):
            continue  # the spool that ships this file reports it
    return names


def _committed(path: Path, job_id: str) -> Committed:
    """Return a whole checkpoint as the rank would have reported it.

    Raises:
        BadCheckpointError: it is damaged, or that of another job.
    """
    return Committed.of(path, checkpoint_transfer.verified(path, job_id), read_files(path))
