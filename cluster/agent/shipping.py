"""Ships what the ranks write, live, for as long as it takes.

One loop looks at the sizes of all spools of all attempts; a spool that grew gets a task that sends
until nothing is left. So an idle host costs a few `stat` calls, and a large request holds up nobody
else; small pieces share messages, and wait for each other (`sharing`).
"""

import asyncio
import contextlib
import functools
import json
import logging
import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from trainhall.cluster.agent import ranks, recovered, transfer
from trainhall.cluster.agent.api import NoRoom, Shipping, Source, Unreachable, Uploading
from trainhall.cluster.agent.data_dir import Token
from trainhall.cluster.agent.recovered import RecoveredSpool
from trainhall.cluster.agent.spools import EventSpool, LogSpool, MetricSpool, Spool, Upload
from trainhall.cluster.agent.ticks import until_tick
from trainhall.training.link import AttemptFolder, Launch

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.1
"""Between two looks while attempts run. What is found in one look shares a message."""
SILENT_SECONDS = 0.5
"""Between two looks at a log, or any file of a rank that is not rank 0, that nothing was written to
since the last: most looks of a host with many ranks are at such files."""
FIRST_SECONDS = 0.25
"""Between two batches of rank 0's metrics, and between two looks while they come: ranks write as
often (`training.pulse`), and to be woken up is most of what a host costs."""
CALM_SECONDS = 0.5
"""Without metrics of rank 0 until they are said to come no more."""
OTHERS_SECONDS = 2.0
"""Between two batches of metrics of a rank that is not rank 0: what is drawn live are the job's own
series, which rank 0 tells. A piece costs a host as much for one number as for thousands."""
SAVE_SECONDS = 5.0
"""How far the saved positions may be behind."""
RETRY_SECONDS = 0.1
RETRY_LIMIT_SECONDS = 2.0
OWN_RETRY_LIMIT_SECONDS = 10.0
"""The longest pause of what fails again and again while others get through."""


class AttemptShipper:
    """The spools of one attempt on this host."""

    def __init__(self, folder: AttemptFolder, launch: Launch, api: Shipping) -> None:
        self._positions = folder.path / "shipped.json"
        self._saved_at = 0.0
        self._tasks: dict[Spool, asyncio.Task[None]] = {}
        self._due: dict[Spool, float] = {}
        """When (monotonic) a spool that may wait is looked at again."""
        self._calm_until = 0.0
        """When (monotonic) rank 0, which tells its metrics, has told none for `CALM_SECONDS`."""
        self.ended = False
        """No process of the attempt is left: what is in the files now is all."""
        self._folder, self._launch, self._api = folder, launch, api
        self._upload = _upload(launch, api)
        self._shipped_of: set[tuple[int, int]] = set()
        self.spools: list[Spool] = []
        self._add_spools((place.rank, launch.generation) for place in launch.ranks)
        self._untold: RecoveredSpool | None = None
        self._look_for_untold()
        before, unrecorded = recovered.earlier(launch), launch.checkpoint.unrecorded
        if self._untold is not None and before is not None and unrecorded is not None:
            after = unrecorded.after_step
            self.spools.append(
                RecoveredSpool(list, before, api, self._upload, lambda: True, after_step=after)
            )
        self._restore()

    def move(self, launch: Launch) -> None:
        """It goes on in a later generation. Only what is saved in that one is still recorded, and
        rank 0 may be another process now, or on another host."""
        self._launch = launch
        self._look_for_untold()

    def _look_for_untold(self) -> None:
        if self._untold is not None:
            self.spools.remove(self._untold)
            self._untold = None
        if any(place.rank == 0 for place in self._launch.ranks):
            self._untold = RecoveredSpool(
                lambda: [spool.path for spool in self._own_events()],
                self._launch, self._api, self._upload, self._all_is_told,
            )  # fmt: skip
            self.spools.append(self._untold)

    def _own_events(self) -> list[EventSpool]:
        """What the ranks here tell: any of them may have been rank 0 for a while."""
        events = [spool for spool in self.spools if isinstance(spool, EventSpool)]
        return [spool for spool in events if not isinstance(spool, RecoveredSpool)]

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
            writer = ranks.writer_name(self._launch, rank, generation)
            source = Source(self._launch.job_id, self._launch.attempt, rank, writer, generation)
            events = EventSpool(
                source, self._folder.events(rank, generation), self._api, self._upload
            )
            metrics = MetricSpool(source, self._folder.metrics(rank, generation), self._api)
            if generation > 1:
                events.name, metrics.name = f"events-{generation}", f"metrics-{generation}"
            self.spools += [events, metrics]
            if logs:  # of one rank after the other they are one file
                for stream, path in (
                    ("stdout", self._folder.stdout(rank)),
                    ("stderr", self._folder.stderr(rank)),
                ):
                    self.spools.append(LogSpool(source, path, self._api, stream))
        return bool(new)

    def start_growing(self, backoff: "Backoff", done: Callable[[], None]) -> bool:
        """Begin to send where there is something new; True when anything is under way."""
        now = time.monotonic()
        for spool in self.spools:
            waits = not self.ended and now < self._due.get(spool, now)
            if waits or spool in self._tasks:
                continue
            more = spool.has_more()
            # Of two looks that come at ticks the second may be the earlier one behind its tick.
            self._due[spool] = now + _pause_after(spool, more) - LOOK_SECONDS / 2
            if more:
                if _is_first(spool):
                    self._calm_until = now + CALM_SECONDS
                task = asyncio.create_task(self._ship(spool, backoff), name=f"ship {spool.path}")
                self._tasks[spool] = task
                task.add_done_callback(functools.partial(self._finished, spool, done))
        return bool(self._tasks)

    @property
    def pause(self) -> float:
        """Seconds until the next look. While rank 0's metrics come, what else it tells may wait for
        them; where they do not, something begins, ends or takes long, and is told sooner."""
        return FIRST_SECONDS if time.monotonic() < self._calm_until else LOOK_SECONDS

    def _finished(self, spool: Spool, done: Callable[[], None], task: asyncio.Task[None]) -> None:
        self._tasks.pop(spool, None)
        if self.shipped:
            self.save()
            done()  # before that there is nothing to report

    @property
    def shipped(self) -> bool:
        """Everything is acknowledged and nothing can follow."""
        return self.ended and not self._tasks and not any(s.has_more() for s in self.spools)

    def _all_is_told(self) -> bool:
        """What ranks told has arrived, and they tell nothing more."""
        return self.ended and not any(
            spool in self._tasks or spool.has_more() for spool in self._own_events()
        )

    async def _ship(self, spool: Spool, backoff: "Backoff") -> None:
        pause, successes = 0.0, backoff.successes
        while True:
            await backoff.wait()
            try:
                more = await spool.ship()
            except Unreachable as error:
                backoff.failed(str(error))
                if isinstance(error, NoRoom) or backoff.successes > successes:
                    # It is refused itself: there is no room for it, or others get through.
                    pause = min(max(2 * pause, RETRY_SECONDS), OWN_RETRY_LIMIT_SECONDS)
                    successes = backoff.successes
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                continue
            except Exception:
                # A file that cannot be read, say. The others go on.
                logger.exception("shipping %s failed; it is tried again", spool.path)
                await asyncio.sleep(RETRY_LIMIT_SECONDS)
                continue
            backoff.worked()
            pause, successes = 0.0, backoff.successes
            self._save_sometimes()
            if not more:
                return

    def _save_sometimes(self) -> None:
        if time.monotonic() - self._saved_at >= SAVE_SECONDS:
            self.save()

    def save(self) -> None:
        """Note the positions, for the next agent to go on from. Losing them costs time only."""
        self._saved_at = time.monotonic()
        data = {f"{s.source.rank}/{s.name}": s.position() for s in self.spools}
        temporary = self._positions.with_suffix(".tmp")
        with contextlib.suppress(OSError):
            temporary.write_text(json.dumps(data))
            temporary.replace(self._positions)

    def _restore(self) -> None:
        try:
            data = json.loads(self._positions.read_bytes())
            for spool in self.spools:
                if spool.position() != [0, 0]:
                    continue  # it has come further since
                offset, sequence = data.get(f"{spool.source.rank}/{spool.name}", (0, 0))
                spool.restore([int(offset), int(sequence)])
        except FileNotFoundError:
            return
        except (ValueError, TypeError, AttributeError):
            logger.warning("%s is damaged; everything is sent again", self._positions)

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _pause_after(spool: Spool, more: bool) -> float:
    """Seconds until a file is looked at again; `more`: something is sent of it now."""
    is_other = spool.source.rank > 0
    if isinstance(spool, MetricSpool):
        return OTHERS_SECONDS if is_other else FIRST_SECONDS if more else 0.0
    return SILENT_SECONDS if not more and (is_other or isinstance(spool, LogSpool)) else 0.0


def _is_first(spool: Spool) -> bool:
    """It holds the metrics that are drawn live."""
    return isinstance(spool, MetricSpool) and spool.source.rank == 0


def _upload(launch: Launch, api: Uploading) -> Upload | None:
    if not launch.checkpoint.upload:
        return None

    async def upload(job_id: str, event: dict[str, object]) -> str | None:
        return await transfer.upload(api, Path(launch.checkpoint.folder), job_id, event)

    return upload


class Backoff:
    """One pause for all: when the coordinator is away, it is away for every spool."""

    def __init__(self) -> None:
        self.successes = 0
        self._until = 0.0
        self._pause = RETRY_SECONDS
        self._back = asyncio.Event()
        self._away = False

    async def wait(self) -> None:
        left = self._until - time.monotonic()
        if left > 0:
            self._back.clear()
            # Not `wait_for`, which on Python 3.11 may swallow a cancellation that meets the event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._back.wait()

    def failed(self, reason: str) -> None:
        now = time.monotonic()
        if not self._away:
            logger.info("shipping waits: %s", reason)
        self._away = True
        if now < self._until:
            return
        self._until = now + self._pause * random.uniform(0.5, 1.0)
        self._pause = min(self._pause * 2, RETRY_LIMIT_SECONDS)

    def worked(self) -> None:
        self.successes += 1
        self._away = False
        self._until = 0.0
        self._pause = RETRY_SECONDS
        self._back.set()


class Shipper:
    """All attempts of this host."""

    def __init__(self, api: Shipping, done: Callable[[], None]) -> None:
        self._api = api
        self._done = done
        self._attempts: dict[Token, AttemptShipper] = {}
        self._some = asyncio.Event()
        self.backoff = Backoff()

    def add(self, token: Token, folder: AttemptFolder, launch: Launch) -> None:
        if token not in self._attempts:
            self._attempts[token] = AttemptShipper(folder, launch, self._api)
            self._some.set()

    def extend(self, token: Token, writers: Iterable[tuple[int, int]]) -> None:
        """See `AttemptShipper.extend`."""
        if token in self._attempts:
            self._attempts[token].extend(writers)

    def move(self, token: Token, onto: Token, launch: Launch) -> None:
        """The attempt goes on under another token."""
        if token in self._attempts:
            shipper = self._attempts[onto] = self._attempts.pop(token)
            shipper.move(launch)

    async def remove(self, token: Token) -> None:
        shipper = self._attempts.pop(token, None)
        if shipper is not None:
            await shipper.close()

    def ended(self, token: Token) -> None:
        """No process of it is left. What is new is looked for at once: its job waits for that."""
        shipper = self._attempts.get(token)
        if shipper is not None:
            shipper.ended = True
            shipper.start_growing(self.backoff, self._done)

    def shipped(self, token: Token) -> bool:
        return token not in self._attempts or self._attempts[token].shipped

    def wake(self) -> None:
        """The coordinator is there again: do not wait any longer."""
        self.backoff.worked()

    async def run(self) -> None:
        """Look for what is new, for ever."""
        while True:
            if not self._attempts:
                self._some.clear()
                await self._some.wait()
            for shipper in list(self._attempts.values()):
                shipper.start_growing(self.backoff, self._done)
            pauses = [shipper.pause for shipper in self._attempts.values()]
            await asyncio.sleep(until_tick(min(pauses, default=LOOK_SECONDS)))

    async def close(self) -> None:
        """Stop, and note how far everything came."""
        for shipper in self._attempts.values():
            await shipper.close()
            shipper.save()
