"""Ships what the ranks write, live, for as long as it takes.

One loop polls the sizes of all spools of all attempts; a spool that grew gets a task that sends
until nothing is left. So an idle host costs a few `stat` calls, and a large request holds up nobody
else; small items share messages, and wait for each other (`coordinator_link.batched_api`).
"""

import asyncio
import contextlib
import functools
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from trainhall.cluster.agent.coordinator_link.http_api import (
    AttemptApi,
    Source,
    StorageFullError,
    UnavailableError,
    Uploading,
)
from trainhall.cluster.agent.os_support import accounts
from trainhall.cluster.agent.os_support.accounts import Owner
from trainhall.cluster.agent.shim import rank_process
from trainhall.cluster.agent.shipping import checkpoint_transfer, unreported_checkpoints
from trainhall.cluster.agent.shipping.event_files import EventFileFollower
from trainhall.cluster.agent.shipping.outputs import OutputCollector
from trainhall.cluster.agent.shipping.spools import (
    EventShipper,
    FileShipper,
    LogShipper,
    MetricShipper,
    Upload,
)
from trainhall.cluster.agent.shipping.unreported_checkpoints import UnreportedShipper
from trainhall.cluster.backoff import Backoff
from trainhall.cluster.waiting import end_tasks, wait_until_set
from trainhall.cluster.wire.writers import tracking_writer
from trainhall.training.event_log import EventLogger
from trainhall.training.fencing import FencingToken
from trainhall.training.link.folder import AttemptFolder, Writer
from trainhall.training.link.frames import TRACKING
from trainhall.training.link.launch import Launch
from trainhall.training.link.regular_file import read_regular

logger = EventLogger(__name__)

POLL_SECONDS = 0.1
"""Between two polls while attempts run. What is found in one poll shares a message."""
IDLE_SECONDS = 0.5
"""Between two polls of a log, or any file of a rank that is not rank 0, that nothing was written to
since the last: most polls of a host with many ranks are of such files."""
FIRST_SECONDS = 0.25
"""Between two batches of rank 0's metrics, and between two polls while they come: ranks write as
often (`training.sync.step_sync`), and to be woken up is most of what a host costs."""
QUIET_SECONDS = 0.5
"""Without metrics of rank 0 for so long, no more are expected."""
OTHERS_SECONDS = 2.0
"""Between two batches of metrics of a rank that is not rank 0: what is drawn live are the job's own
series, which rank 0 writes. An item costs a host as much for one number as for thousands."""
SAVE_SECONDS = 5.0
"""Most seconds by which the saved positions may lag behind."""
MAX_POSITIONS_BYTES = 16 * 2**20
RETRY_SECONDS = 0.1
RETRY_LIMIT_SECONDS = 2.0
OUTPUT_TRIES = 5
"""Failures of this agent itself until a job ends without the rest of its files."""
OWN_RETRY_LIMIT_SECONDS = 10.0
"""The longest pause of what fails again and again while others get through."""


class AttemptShipper:
    """The spools of one attempt on this host."""

    def __init__(
        self, folder: AttemptFolder, launch: Launch, api: AttemptApi, code: Path | None = None
    ) -> None:
        self._positions = folder.path / "shipped.json"
        self._saved_at = 0.0
        self._tasks: dict[FileShipper, asyncio.Task[None]] = {}
        self.outputs = OutputCollector(folder, launch, api, code)
        self._collection: asyncio.Task[None] | None = None
        self._due: dict[FileShipper, float] = {}
        """When (monotonic) a spool that may wait is polled again."""
        self._quiet_at = 0.0
        """When (monotonic) rank 0 has written no metrics for `QUIET_SECONDS`."""
        self.ended = False
        """No process of the attempt is left: what is in the files now is all."""
        self._folder, self._launch, self._api = folder, launch, api
        self._owner = accounts.owner_of(folder.path)
        self._upload = _upload(launch, api, self._owner)
        self._shipped_of: set[tuple[int, int]] = set()
        self.spools: list[FileShipper] = []
        self._add_spools((slot.rank, launch.generation) for slot in launch.ranks)
        self._add_tracked()
        self._files = EventFileFollower(folder, launch, self._owner)
        self._following: asyncio.Task[None] | None = None
        self.spools += self._files.new_spools(api)
        self._unreported: UnreportedShipper | None = None
        self._add_unreported()
        before, unrecorded = unreported_checkpoints.earlier(launch), launch.checkpoint.unrecorded
        if self._unreported is not None and before is not None and unrecorded is not None:
            after = unrecorded.after_step
            self.spools.append(
                UnreportedShipper(
                    list,
                    before,
                    api,
                    self._upload,
                    lambda: True,
                    after_step=after,
                    owner=self._owner,
                )
            )
        self._restore()

    def move(self, launch: Launch) -> None:
        """Continue in a later generation.

        Only checkpoints saved in that one are still recorded, and rank 0 may be another process
        now, or on another host.
        """
        self._launch = launch
        self.outputs.move(launch)
        self._add_unreported()

    def _add_unreported(self) -> None:
        if self._unreported is not None:
            self.spools.remove(self._unreported)
            self._unreported = None
        if any(slot.rank == 0 for slot in self._launch.ranks):
            self._unreported = UnreportedShipper(
                lambda: [spool.path for spool in self._own_events()],
                self._launch, self._api, self._upload, self._all_reported, owner=self._owner,
            )  # fmt: skip
            self.spools.append(self._unreported)

    def _own_events(self) -> list[EventShipper]:
        """Return the ranks' event spools here: any may have been rank 0 for a while."""
        events = [spool for spool in self.spools if isinstance(spool, EventShipper)]
        return [
            spool
            for spool in events
            if not isinstance(spool, UnreportedShipper) and not _is_tracked(spool)
        ]

    def extend(self, writers: Iterable[tuple[int, int]]) -> None:
        """Ship the files of these processes too, given by the rank and generation of their
        beginning, from where an earlier agent had come."""
        if self._add_spools(writers):
            self._restore()

    def _add_spools(self, writers: Iterable[tuple[int, int]]) -> bool:
        new = sorted(set(writers) - self._shipped_of)
        for rank, generation in new:
            logs = all(rank != other for other, _ in self._shipped_of)
            self._shipped_of.add((rank, generation))
            writer = rank_process.writer_name(self._launch, rank, generation)
            source = Source(self._launch.job_id, self._launch.attempt, rank, writer, generation)
            events = EventShipper(
                source, self._folder.events(rank, generation), self._api, self._upload,
                profiled=self.outputs.hurry, owner=self._owner,
            )  # fmt: skip
            metrics = MetricShipper(
                source, self._folder.metrics(rank, generation), self._api, owner=self._owner
            )
            if generation > 1:
                events.name, metrics.name = f"events-{generation}", f"metrics-{generation}"
            self.spools += [events, metrics]
            if logs:  # of one rank after the other they are one file
                for stream, path in (
                    ("stdout", self._folder.stdout(rank)),
                    ("stderr", self._folder.stderr(rank)),
                ):
                    self.spools.append(
                        LogShipper(source, path, self._api, stream, owner=self._owner)
                    )
        return bool(new)

    def _add_tracked(self) -> None:
        """Ship what tracking clients log, too: the shim has made the files, or is about to."""
        launch = self._launch
        writers = {Writer(slot.rank, launch.generation) for slot in launch.ranks[:1]}
        for writer in sorted({*self._folder.trackers(), *writers}):
            rank, generation = writer
            name = tracking_writer(launch.job_id, launch.attempt, generation, rank)
            source = Source(launch.job_id, launch.attempt, rank, name, generation)
            metrics = MetricShipper(
                source, self._folder.tracked_metrics(writer), self._api, owner=self._owner
            )
            events = EventShipper(
                source, self._folder.tracked_events(writer), self._api, owner=self._owner
            )
            metrics.name = f"{TRACKING}metrics-{generation}"
            events.name = f"{TRACKING}events-{generation}"
            self.spools += [events, metrics]

    def start_growing(self, link: "LinkPause", done: Callable[[], None]) -> bool:
        """Begin to send where there is something new; True when anything is under way."""
        now = time.monotonic()
        for spool in self.spools:
            waits = not self.ended and now < self._due.get(spool, now)
            if waits or spool in self._tasks:
                continue
            more = spool.has_more()
            self._due[spool] = now + _pause_after(spool, more)
            if more:
                if _is_first(spool):
                    self._quiet_at = now + QUIET_SECONDS
                task = asyncio.create_task(self._ship(spool, link), name=f"ship {spool.path}")
                self._tasks[spool] = task
                task.add_done_callback(functools.partial(self._finished, spool, done))
        if self._collection is None and self.outputs.is_due(self.ended):
            self._collection = asyncio.create_task(self._collect(link), name="outputs")
            self._collection.add_done_callback(functools.partial(self._collected, done))
        if self._following is None and self._files.is_due(self.ended):
            follow = self._files.follow(lambda: self.ended)
            self._following = asyncio.create_task(follow, name="event files")
            self._following.add_done_callback(functools.partial(self._followed, done))
        return bool(self._tasks) or self._collection is not None or self._following is not None

    @property
    def pause(self) -> float:
        """Seconds until the next poll. While rank 0's metrics come, its other files may wait for
        them; where they do not, something begins, ends or takes long, and is sent sooner."""
        return FIRST_SECONDS if time.monotonic() < self._quiet_at else POLL_SECONDS

    def _finished(
        self, spool: FileShipper, done: Callable[[], None], task: asyncio.Task[None]
    ) -> None:
        self._tasks.pop(spool, None)
        self._see_end(done)

    def _collected(self, done: Callable[[], None], task: asyncio.Task[None]) -> None:
        self._collection = None
        self._see_end(done)

    def _followed(self, done: Callable[[], None], task: asyncio.Task[None]) -> None:
        self._following = None
        self.spools += self._files.new_spools(self._api)
        self._see_end(done)

    def _see_end(self, done: Callable[[], None]) -> None:
        if self.shipped:
            self.save()
            done()  # before that there is nothing to report

    @property
    def shipped(self) -> bool:
        """Everything is acknowledged and nothing can follow."""
        if not self.ended or self._tasks or not self.outputs.is_done:
            return False
        # What follows the files adds spools at its end.
        if self._following is not None or not self._files.is_done:
            return False
        return not any(spool.has_more() for spool in self.spools)

    @property
    def backlog(self) -> int:
        """Bytes of its spools that the coordinator has not acknowledged."""
        return sum(spool.backlog for spool in self.spools)

    def _all_reported(self) -> bool:
        """Return whether all events of the ranks have arrived, and none can follow."""
        return self.ended and not any(
            spool in self._tasks or spool.has_more() for spool in self._own_events()
        )

    async def _ship(self, spool: FileShipper, link: "LinkPause") -> None:
        pause, own, successes = 0.0, Backoff(RETRY_SECONDS, OWN_RETRY_LIMIT_SECONDS), link.successes
        while True:
            await link.wait()
            try:
                more = await spool.ship()
            except UnavailableError as error:
                link.failed(str(error))
                if isinstance(error, StorageFullError) or link.successes > successes:
                    # It is refused itself: there is no room for it, or others get through.
                    pause, successes = own.next(), link.successes
                await asyncio.sleep(pause)
                continue
            except Exception:
                # A file that cannot be read, say. The others continue.
                logger.exception("shipping_failed", path=spool.path)
                await asyncio.sleep(RETRY_LIMIT_SECONDS)
                continue
            link.worked()
            own.reset()
            pause, successes = 0.0, link.successes
            self._save_sometimes()
            if not more:
                return

    async def _collect(self, link: "LinkPause") -> None:
        """Send the files that the ranks wrote; after their end, all of them."""
        own, tries = Backoff(RETRY_SECONDS, OWN_RETRY_LIMIT_SECONDS), 0
        while True:
            await link.wait()
            ended = self.ended
            try:
                await self.outputs.collect(ended)
            except UnavailableError as error:
                link.failed(str(error))
                await asyncio.sleep(own.next())
                continue
            except Exception:
                # A failing disk, say: what was written is still there for another try.
                logger.exception("outputs_not_collected", path=self._folder.path)
                tries += ended
                if tries == OUTPUT_TRIES:
                    self.outputs.is_done = True
                    return
                await asyncio.sleep(RETRY_LIMIT_SECONDS)
                continue
            link.worked()
            if self.outputs.is_done or not self.outputs.is_due(self.ended):
                return

    def _save_sometimes(self) -> None:
        if time.monotonic() - self._saved_at >= SAVE_SECONDS:
            self.save()

    def save(self) -> None:
        """Save the positions, for the next agent to resume from. Losing them costs time only."""
        self._saved_at = time.monotonic()
        data = {f"{s.source.rank}/{s.name}": s.position() for s in self.spools}
        temporary = self._positions.with_suffix(".tmp")
        with contextlib.suppress(OSError), accounts.acting_as(self._owner):
            temporary.write_text(json.dumps(data))
            temporary.replace(self._positions)

    def _restore(self) -> None:
        try:
            with accounts.acting_as(self._owner):
                data = json.loads(read_regular(self._positions, MAX_POSITIONS_BYTES))
            for spool in self.spools:
                if spool.position() != [0, 0]:
                    continue  # it has come further since
                offset, sequence = data.get(f"{spool.source.rank}/{spool.name}", (0, 0))
                spool.restore([int(offset), int(sequence)])
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, AttributeError):
            logger.warning("positions_damaged", path=self._positions, action="resend all")

    async def close(self) -> None:
        running = [task for task in (self._collection, self._following) if task is not None]
        await end_tasks([*self._tasks.values(), *running])


def _pause_after(spool: FileShipper, more: bool) -> float:
    """Return seconds until a file is read again; `more`: some of it is sent now."""
    is_other = spool.source.rank > 0
    if _is_tracked(spool) and not more:
        return IDLE_SECONDS
    if isinstance(spool, MetricShipper):
        return OTHERS_SECONDS if is_other else FIRST_SECONDS if more else 0.0
    return IDLE_SECONDS if not more and (is_other or isinstance(spool, LogShipper)) else 0.0


def _is_first(spool: FileShipper) -> bool:
    """Return whether it holds the metrics that are drawn live."""
    return isinstance(spool, MetricShipper) and spool.source.rank == 0


def _is_tracked(spool: FileShipper) -> bool:
    """Return whether it holds what tracking clients log."""
    return spool.name.startswith(TRACKING)


def _upload(launch: Launch, api: Uploading, owner: Owner | None) -> Upload | None:
    if not launch.checkpoint.upload:
        return None

    async def upload(job_id: str, event: dict[str, object]) -> str | None:
        folder = Path(launch.checkpoint.folder)
        return await checkpoint_transfer.upload(api, folder, job_id, event, owner)

    return upload


class LinkPause:
    """One pause for all: when the coordinator is away, it is away for every spool."""

    def __init__(self) -> None:
        self.successes = 0
        self._until = 0.0
        self._backoff = Backoff(RETRY_SECONDS, RETRY_LIMIT_SECONDS)
        self._back = asyncio.Event()
        self._unreachable = False

    async def wait(self) -> None:
        left = self._until - time.monotonic()
        if left > 0:
            self._back.clear()
            await wait_until_set(self._back, left)

    def failed(self, reason: str) -> None:
        now = time.monotonic()
        if not self._unreachable:
            logger.info("shipping_waits", error=reason)
        self._unreachable = True
        if now < self._until:
            return
        self._until = now + self._backoff.next()

    def worked(self) -> None:
        self.successes += 1
        self._unreachable = False
        self._until = 0.0
        self._backoff.reset()
        self._back.set()


class Shipper:
    """All attempts of this host."""

    def __init__(self, api: AttemptApi, done: Callable[[], None], code: Path | None = None) -> None:
        self._api = api
        self._code = code
        """Folder of unpacked code, by name."""
        self._done = done
        self._attempts: dict[FencingToken, AttemptShipper] = {}
        self._some = asyncio.Event()
        self.link = LinkPause()

    def add(self, token: FencingToken, folder: AttemptFolder, launch: Launch) -> None:
        if token not in self._attempts:
            name = launch.code_name
            code = self._code / name if self._code is not None and name is not None else None
            self._attempts[token] = AttemptShipper(folder, launch, self._api, code)
            self._some.set()

    def extend(self, token: FencingToken, writers: Iterable[tuple[int, int]]) -> None:
        """See `AttemptShipper.extend`."""
        if token in self._attempts:
            self._attempts[token].extend(writers)

    def move(self, token: FencingToken, onto: FencingToken, launch: Launch) -> None:
        """Continue an attempt under another token."""
        if token in self._attempts:
            shipper = self._attempts[onto] = self._attempts.pop(token)
            shipper.move(launch)

    def outputs_of(self, token: FencingToken) -> OutputCollector | None:
        """Return what collects the files of an attempt."""
        shipper = self._attempts.get(token)
        return shipper.outputs if shipper is not None else None

    async def remove(self, token: FencingToken) -> None:
        shipper = self._attempts.pop(token, None)
        if shipper is not None:
            await shipper.close()

    def ended(self, token: FencingToken) -> None:
        """Note that no process of it is left. Ship new data at once: its job waits for that."""
        shipper = self._attempts.get(token)
        if shipper is not None:
            shipper.ended = True
            shipper.start_growing(self.link, self._done)

    def shipped(self, token: FencingToken) -> bool:
        return token not in self._attempts or self._attempts[token].shipped

    def backlog(self) -> int:
        """Return how many bytes of this host's spools the coordinator has not acknowledged."""
        return sum(shipper.backlog for shipper in self._attempts.values())

    def wake(self) -> None:
        """Stop waiting: the coordinator is reachable again."""
        self.link.worked()

    async def run(self) -> None:
        """Poll for new data until cancelled."""
        while True:
            if not self._attempts:
                self._some.clear()
                await self._some.wait()
            for shipper in list(self._attempts.values()):
                shipper.start_growing(self.link, self._done)
            pauses = [shipper.pause for shipper in self._attempts.values()]
            await asyncio.sleep(min(pauses, default=POLL_SECONDS))

    async def close(self) -> None:
        """Stop, and note how far everything came."""
        for shipper in self._attempts.values():
            await shipper.close()
            shipper.save()
