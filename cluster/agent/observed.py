"""Attempts of this host as their folders and shims show them, and how each ends."""

import asyncio
import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from trainhall.cluster.agent import threads
from trainhall.cluster.agent.attempt import Attempt
from trainhall.cluster.agent.data_dir import DataDir
from trainhall.cluster.agent.job_settings import cgroup_name
from trainhall.cluster.agent.launch.launcher import CannotStartError
from trainhall.cluster.agent.os_support import accounts, linux, processes
from trainhall.cluster.agent.os_support.cgroups import Cgroups
from trainhall.cluster.agent.reconcile import Stage
from trainhall.cluster.agent.shim import folder_ipc, outcome
from trainhall.cluster.agent.shim.folder_ipc import Claim
from trainhall.cluster.agent.shipping.shipping import Shipper
from trainhall.cluster.wire.protocol import AssignmentReport
from trainhall.training.event_log import EventLogger
from trainhall.training.fencing import FencingToken
from trainhall.training.link.control import Control
from trainhall.training.link.failure import Cause, Failure
from trainhall.training.link.folder import AttemptFolder, replace_json
from trainhall.training.link.launch import Command, load_launch
from trainhall.training.link.regular_file import read_regular
from trainhall.training.link.status import Outcome, ShimStatus

logger = EventLogger(__name__)

START_SECONDS = 60.0
"""A shim that was started and has not taken its folder for so long is started again."""
MAX_STARTS = 3
SWEEP_SECONDS = 0.1
MAX_STATUS_BYTES = 4 * 2**20
UNREADABLE_SECONDS = 5.0
"""Time for the processes of an attempt that cannot be taken up to end."""


class ObservedAttempts:
    """All attempts of this host, as their folders and processes show them."""

    def __init__(
        self,
        data_dir: DataDir,
        shipper: Shipper,
        changed: Callable[[], None],
        own_pids: Callable[[], set[int]],
        cgroups: Cgroups | None = None,
    ) -> None:
        self.by_token: dict[FencingToken, Attempt] = {}
        self._data_dir = data_dir
        self._shipper = shipper
        self._changed = changed
        self._own_pids = own_pids
        self._cgroups = cgroups
        self._unreadable: list[AttemptFolder] = []

    def find(self) -> None:
        """Take up the attempts of an earlier agent, from their folders."""
        for unfinished in self._data_dir.attempts.glob("*/.preparing-*"):
            shutil.rmtree(unfinished, ignore_errors=True)
        for folder, launch in self._data_dir.launches():
            if launch is None:
                self._unreadable.append(folder)
                continue
            attempt = Attempt(launch.token, folder, launch, Stage.READY)
            self._read_status(attempt)
            if attempt.status is not None:
                # The shim may not have taken up the newest launch: it is sent again.
                attempt.token = launch.token._replace(generation=attempt.status.generation)
            self.by_token[attempt.token] = attempt
            self._shipper.add(attempt.token, folder, launch)
            self._ship_all_of(attempt)
        self.refresh()
        for attempt in self.by_token.values():
            commanded = attempt.status is not None and attempt.status.command is not Command.RUN
            with attempt.as_owner():
                if not commanded and folder_ipc.read_claim(attempt.folder) is not Claim.RELEASED:
                    # An agent marked it and ended before it commanded a shim: it runs on.
                    attempt.stopped_mark.unlink(missing_ok=True)

    async def end_unreadable(self) -> None:
        """End the processes of attempts that cannot be taken up, and remove their folders.

        Before the coordinator learns that they do not run here: it may start the next attempt at
        once.
        """
        await asyncio.gather(*map(self._end_unreadable, self._unreadable))

    def reports(self) -> list[AssignmentReport]:
        return [a.report(self._shipper.shipped(t)) for t, a in self.by_token.items()]

    def live(self) -> list[Attempt]:
        """Return the attempts whose processes may still run."""
        return [a for a in self.by_token.values() if a.observe(False).stage is Stage.LIVE]

    def live_tasks(self) -> list[Attempt]:
        """Return the live attempts that can save and end at an agreed step."""
        return [a for a in self.live() if a.launch.spec.script is None or _is_listened(a)]

    def pids_by_slot(self) -> dict[int, list[int]]:
        """Return the pids of the ranks on each CPU slot."""
        found: dict[int, list[int]] = {}
        for attempt in self.live():
            states = {r.rank: r for r in attempt.status.ranks} if attempt.status else {}
            for slot in attempt.launch.ranks:
                state = states.get(slot.rank)
                if slot.device_kind == "cpu" and state and state.pid and not state.finished_at:
                    found.setdefault(slot.device_index, []).append(state.pid)
        return found

    def refresh(self) -> bool:
        """Poll every attempt that has not ended; True when something changed."""
        changed = False
        for attempt in list(self.by_token.values()):
            if attempt.stage not in (Stage.READY, Stage.LIVE):
                continue
            if self._poll(attempt) or attempt.is_behind:
                changed = True
                self._follow(attempt)
        return changed

    def _follow(self, attempt: Attempt) -> None:
        """Follow a shim that took up a later generation or started another process."""
        before, status = attempt.token, attempt.status
        if status is None:
            return
        if attempt.is_behind:
            try:
                with attempt.as_owner():
                    launch = load_launch(attempt.folder.launch)
            except (OSError, ValueError) as error:
                # It is written again until this succeeds (`Attempts._regroup`).
                logger.warning("launch_unreadable", path=attempt.folder.launch, error=error)
                return
            attempt.launch = launch
            self.rename(attempt, before._replace(generation=status.generation))
        if status.generation > 1:
            self._ship_all_of(attempt)

    def rename(self, attempt: Attempt, token: FencingToken) -> None:
        """Move an attempt to the token of its later generation."""
        self._shipper.move(attempt.token, token, attempt.launch)
        self.by_token[token] = self.by_token.pop(attempt.token)
        attempt.token = token

    def _ship_all_of(self, attempt: Attempt) -> None:
        """Ship what the processes write that have begun in later generations, too."""
        status = attempt.status
        writers = [rank.writer for rank in status.ranks] if status is not None else []
        with attempt.as_owner():
            found = attempt.folder.writers()
        self._shipper.extend(attempt.token, [*found, *writers])

    def _poll(self, attempt: Attempt) -> bool:
        before = (attempt.stage, attempt.status)
        with attempt.as_owner():
            claim = folder_ipc.read_claim(attempt.folder)
        self._read_status(attempt)
        if claim is Claim.NONE:
            self._watch_start(attempt)
            return before != (attempt.stage, attempt.status)
        attempt.stage = Stage.LIVE
        attempt.started_at = None
        if claim is Claim.RELEASED and attempt.task is None:
            # It may have published its end between the two reads.
            self._read_status(attempt)
            if attempt.status is not None and attempt.status.outcome is not None:
                self.end(attempt, attempt.status.outcome, attempt.status.failure)
            else:
                self.begin(attempt, self._sweep(attempt))
        return before != (attempt.stage, attempt.status)

    def _read_status(self, attempt: Attempt) -> None:
        path = attempt.folder.status
        stamp = attempt.status_stamp
        try:
            with attempt.as_owner():
                stat = path.lstat()
                stamp = (stat.st_ino, stat.st_mtime_ns)
                if stamp == attempt.status_stamp:
                    return
                data = read_regular(path, MAX_STATUS_BYTES)
            attempt.status = ShimStatus.model_validate_json(data)
            attempt.status_stamp = stamp
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            # A failing disk, empty after a power cut, of another version, or replaced by the job:
            # one report per file.
            attempt.status_stamp = stamp
            logger.warning("status_unreadable", path=path, error=error)

    def _watch_start(self, attempt: Attempt) -> None:
        """Watch a shim that was started but has not claimed the folder: wait, retry, or fail."""
        if attempt.started_at is None:
            return
        died = attempt.process is not None and attempt.process.returncode is not None
        if not died and time.monotonic() - attempt.started_at < START_SECONDS:
            return
        attempt.started_at = None
        if attempt.starts < MAX_STARTS:
            return
        tail = _log_tail(attempt)
        # Removed before it is reported: a shim that is late finds nothing to run.
        hidden = hide_folder(attempt.folder)
        with accounts.acting_as(accounts.owner_of(hidden)):
            claim = folder_ipc.read_claim(AttemptFolder(hidden))
        if claim is not Claim.NONE:
            hidden.rename(attempt.folder.path)
            attempt.stage = Stage.LIVE  # one took it just now
            return
        attempt.removal = asyncio.create_task(threads.finish(remove_hidden, hidden))
        message = "the processes of this attempt cannot be started on this host"
        self.refuse(attempt, message, tail)

    def refuse(self, attempt: Attempt, message: str, tail: str = "") -> None:
        """End an attempt whose ranks cannot be started here."""
        failure = Failure(message=message, log_tail=tail, cause=Cause.NOT_STARTED)
        self.end(attempt, Outcome.FAILED, failure)

    def end(self, attempt: Attempt, ended: Outcome, failure: Failure | None) -> None:
        attempt.stage = Stage.ENDED
        attempt.outcome = ended
        attempt.failure = failure
        self._shipper.ended(attempt.token)
        self._changed()

    def begin(self, attempt: Attempt, work: Coroutine[Any, Any, None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except asyncio.CancelledError:
                raise
            except CannotStartError as error:
                self.end(attempt, Outcome.FAILED, error.failure)
            except Exception as error:
                logger.exception("attempt_cannot_continue", **attempt.log_fields)
                problem = f"{type(error).__name__}: {error}"
                self.refuse(attempt, f"this host cannot run the attempt: {problem}")
            finally:
                attempt.task = None
                self._changed()

        attempt.task = asyncio.create_task(guarded(), name=f"attempt {attempt.token}")

    async def _sweep(self, attempt: Attempt) -> None:
        """Clean up after a shim that died without an outcome, then report in its place."""
        while left := await self._left_of(attempt.folder):
            processes.send(left, signal.SIGKILL)
            await asyncio.sleep(SWEEP_SECONDS)
        asked = attempt.status.command if attempt.status is not None else Command.RUN
        failure = None
        if asked is not Command.STOP and not attempt.ended_with_agent:
            failure = Failure(
                message="the process that supervised the ranks was killed",
                cause=Cause.KILLED,
                time=time.time(),
                log_tail=_log_tail(attempt),
            )
        ended = Outcome.FAILED if failure is not None else Outcome.STOPPED
        self._write_end(attempt, ended, failure)
        self.end(attempt, ended, failure)

    async def _left_of(self, folder: AttemptFolder) -> set[int]:
        """Return the live processes of an attempt without a shim, whatever they have shed."""
        found = await asyncio.to_thread(processes.marked, folder.path)
        if self._cgroups is not None:
            self._cgroups.kill(cgroup_name(folder))
            found |= self._cgroups.pids(cgroup_name(folder))
        owner = accounts.owner_of(folder.path)
        shims = {pid for a in self.by_token.values() if (pid := _shim_pid(a)) is not None}
        if owner is None and not linux.adopts_orphans():
            return found
        if owner is None:
            # What the shim had adopted is this agent's by now. Asked on the thread that starts
            # processes: none is on its way.
            return found | processes.adopted(self._own_pids() | shims)
        since = folder.path.parent.stat().st_mtime if accounts.has_name(owner) else 0.0
        return found | await asyncio.to_thread(processes.of_user, owner.uid, since, shims)

    async def _end_unreadable(self, folder: AttemptFolder) -> None:
        until = time.monotonic() + UNREADABLE_SECONDS
        while True:
            left = await self._left_of(folder)
            with accounts.acting_as(accounts.owner_of(folder.path)):
                is_supervised = folder_ipc.read_claim(folder) is Claim.HELD
            if not left and not is_supervised:
                await threads.finish(remove_hidden, hide_folder(folder))
                return
            if time.monotonic() > until:
                logger.error("processes_left", path=folder.path, pids=sorted(left))
                return
            # A shim that was asked to stop starts no more ranks, and ends once none is left.
            with accounts.acting_as(accounts.owner_of(folder.path)):
                folder_ipc.send_command(folder, Command.STOP)
            processes.send(left, signal.SIGKILL)
            await asyncio.sleep(SWEEP_SECONDS)

    def remove_cgroup(self, folder: AttemptFolder) -> None:
        """Remove the control group of an attempt that has ended, with what is left in it."""
        if self._cgroups is not None:
            name = cgroup_name(folder)
            if not self._cgroups.remove(name):
                self._cgroups.kill(name)
                processes.send(self._cgroups.pids(name), signal.SIGKILL)
                self._cgroups.remove(name)

    def _write_end(self, attempt: Attempt, ended: Outcome, failure: Failure | None) -> None:
        """Keep the end for the next agent."""
        with attempt.as_owner():
            folder_ipc.command_path(attempt.folder).unlink(missing_ok=True)
        if attempt.status is None:
            return
        now = time.time()
        dead = [
            r if r.finished_at else r.model_copy(update={"finished_at": now, "signal": 9})
            for r in attempt.status.ranks
        ]
        attempt.status = attempt.status.model_copy(
            update={"phase": "exited", "outcome": ended, "failure": failure, "ranks": dead}
        )
        with contextlib.suppress(OSError), attempt.as_owner():
            replace_json(attempt.folder.status, attempt.status)


def _is_listened(attempt: Attempt) -> bool:
    with attempt.as_owner():
        return Control.is_listened(attempt.folder.control)


def _shim_pid(attempt: Attempt) -> int | None:
    with attempt.as_owner():
        return folder_ipc.shim_pid(attempt.folder)


def _log_tail(attempt: Attempt) -> str:
    with attempt.as_owner():
        return outcome.last_lines(folder_ipc.log_path(attempt.folder))


def hide_folder(folder: AttemptFolder) -> Path:
    """Take an attempt's folder away from a shim that would begin there; where it is now."""
    hidden = folder.path.with_name(f".preparing-{folder.path.name}-{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        folder.path.rename(hidden)
    return hidden


def remove_hidden(hidden: Path) -> None:
    """Remove its files: with the code of a job there are up to 20,000."""
    shutil.rmtree(hidden, ignore_errors=True)
    with contextlib.suppress(OSError):
        # Not empty while another attempt of the job has its folder there.
        hidden.parent.rmdir()
