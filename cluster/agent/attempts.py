"""The attempts of this host: what is found of each, and the actions that change it."""

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
from trainhall.cluster.agent.attempt import Attempt, keep_prepared
from trainhall.cluster.agent.coordinator_link.http_api import CoordinatorApi
from trainhall.cluster.agent.data_dir import DataDir
from trainhall.cluster.agent.launch.warm_client import WarmParent
from trainhall.cluster.agent.launcher import CannotStartError, Launcher
from trainhall.cluster.agent.os_support import processes
from trainhall.cluster.agent.reconcile import (
    Action,
    CleanUp,
    DesiredAttempt,
    EndAsGeneration,
    Plan,
    Prepare,
    Regroup,
    ReportNotStarted,
    RequestGradients,
    SendCommand,
    Stage,
    Start,
    decide,
)
from trainhall.cluster.agent.shim import folder_ipc, isolation, outcome
from trainhall.cluster.agent.shim.folder_ipc import Claim
from trainhall.cluster.agent.shipping.shipping import Shipper
from trainhall.cluster.wire.protocol import Assignment, AssignmentReport
from trainhall.training.event_log import EventLogger
from trainhall.training.fencing import FencingToken
from trainhall.training.link.control import Control
from trainhall.training.link.failure import Failure
from trainhall.training.link.failure_cause import Cause
from trainhall.training.link.folder import AttemptFolder, replace_json
from trainhall.training.link.launch import Command, Launch
from trainhall.training.link.status import Outcome, ShimStatus

logger = EventLogger(__name__)

START_SECONDS = 60.0
"""A shim that was started and has not taken its folder for so long is started again."""
MAX_STARTS = 3
SWEEP_SECONDS = 0.1


class Attempts:
    """All attempts of this host. Every method may be called at any time and in any order."""

    def __init__(
        self,
        data_dir: DataDir,
        api: CoordinatorApi,
        warm: WarmParent,
        changed: Callable[[], None],
    ) -> None:
        self._data_dir = data_dir
        self._launcher = Launcher(data_dir, api, warm)
        self._changed = changed
        self._attempts: dict[FencingToken, Attempt] = {}
        self._desired: dict[FencingToken, Assignment] | None = None
        self._agent_ends = False
        self._acked_at = float("-inf")
        """When the newest report that the coordinator took was sent (`isolation.now`)."""
        self._leaving: dict[FencingToken, asyncio.Task[None]] = {}
        """Attempts whose folders are being removed."""
        self.shipper = Shipper(api, changed)

    # -- what is --------------------------------------------------------------------------------

    def find(self) -> None:
        """Take up the attempts of an earlier agent, from their folders."""
        for unfinished in self._data_dir.attempts.glob("*/.preparing-*"):
            shutil.rmtree(unfinished, ignore_errors=True)
        for token, folder in self._data_dir.folders().items():
            launch = Launch.model_validate_json(folder.launch.read_bytes())
            attempt = Attempt(token, folder, launch, Stage.READY)
            self._read_status(attempt)
            if attempt.status is not None:
                # The shim may not have taken up the newest launch: it is sent again.
                attempt.token = token._replace(generation=attempt.status.generation)
            self._attempts[attempt.token] = attempt
            self.shipper.add(attempt.token, folder, launch)
            self._ship_all_of(attempt)
        self.refresh()
        for attempt in self.live():
            commanded = attempt.status is not None and attempt.status.command is not Command.RUN
            if not commanded and folder_ipc.read_claim(attempt.folder) is Claim.HELD:
                # An agent marked it and was killed before it commanded the shim: it runs on.
                attempt.stopped_mark.unlink(missing_ok=True)

    def reports(self) -> list[AssignmentReport]:
        return [a.report(self.shipper.shipped(t)) for t, a in self._attempts.items()]

    def watched(self) -> bool:
        """Return whether any process may still end without reporting."""
        return bool(self._launcher.children or self.live())

    def live(self) -> list[Attempt]:
        """Return the attempts whose processes may still run."""
        return [a for a in self._attempts.values() if a.observe(False).stage is Stage.LIVE]

    def live_tasks(self) -> list[Attempt]:
        """Return the live attempts that can save and end at an agreed step."""
        return [
            a
            for a in self.live()
            if a.launch.spec.script is None or Control.is_listened(a.folder.control)
        ]

    def all_reported(self) -> bool:
        """Return whether the coordinator knows every outcome and has all that was written."""
        return not self._leaving and all(
            a.stage is not Stage.ENDED for a in self._attempts.values()
        )

    def empty(self) -> bool:
        """Return whether nothing of any attempt is left on this host."""
        return not self._attempts and not self._leaving

    def pids_by_slot(self) -> dict[int, list[int]]:
        """Return the pids of the ranks on each CPU slot."""
        found: dict[int, list[int]] = {}
        for attempt in self.live():
            states = {r.rank: r for r in attempt.status.ranks} if attempt.status else {}
            for place in attempt.launch.ranks:
                state = states.get(place.rank)
                if place.device_kind == "cpu" and state and state.pid and not state.finished_at:
                    found.setdefault(place.device_index, []).append(state.pid)
        return found

    def refresh(self) -> bool:
        """Look at every attempt that has not ended; True when something changed."""
        changed = False
        self._launcher.reap()
        for attempt in list(self._attempts.values()):
            if attempt.stage in (Stage.READY, Stage.LIVE) and self._look(attempt):
                changed = True
                self._follow(attempt)
        return changed

    def _follow(self, attempt: Attempt) -> None:
        """Follow a shim that took up a later generation or started another process."""
        before, status = attempt.token, attempt.status
        if status is None:
            return
        if status.generation > before.generation:
            attempt.launch = Launch.model_validate_json(attempt.folder.launch.read_bytes())
            self._rename(attempt, before._replace(generation=status.generation))
        if status.generation > 1:
            self._ship_all_of(attempt)

    def _rename(self, attempt: Attempt, token: FencingToken) -> None:
        """Move an attempt to the token of its later generation."""
        self.shipper.move(attempt.token, token, attempt.launch)
        self._attempts[token] = self._attempts.pop(attempt.token)
        attempt.token = token

    def _ship_all_of(self, attempt: Attempt) -> None:
        """Ship what the processes write that have begun in later generations, too."""
        status = attempt.status
        writers = [rank.writer for rank in status.ranks] if status is not None else []
        self.shipper.extend(attempt.token, [*attempt.folder.writers(), *writers])

    def _look(self, attempt: Attempt) -> bool:
        before = (attempt.stage, attempt.status)
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
                self._end(attempt, attempt.status.outcome, attempt.status.failure)
            else:
                self._begin(attempt, self._sweep(attempt))
        return before != (attempt.stage, attempt.status)

    def _read_status(self, attempt: Attempt) -> None:
        try:
            stat = attempt.folder.status.stat()
            stamp = (stat.st_ino, stat.st_mtime_ns)
            if stamp != attempt.status_stamp:
                data = attempt.folder.status.read_bytes()
                attempt.status = ShimStatus.model_validate_json(data)
                attempt.status_stamp = stamp
        except FileNotFoundError:
            return

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
        tail = outcome.last_lines(folder_ipc.log_path(attempt.folder))
        # Removed before it is reported: a shim that is late finds nothing to run.
        hidden = _hide_folder(attempt.folder)
        if folder_ipc.read_claim(AttemptFolder(hidden)) is not Claim.NONE:
            hidden.rename(attempt.folder.path)
            attempt.stage = Stage.LIVE  # one took it just now
            return
        attempt.removal = asyncio.create_task(threads.finish(_remove_hidden, hidden))
        message = "the processes of this attempt cannot be started on this host"
        self._refuse(attempt, message, tail)

    def _refuse(self, attempt: Attempt, message: str, tail: str = "") -> None:
        """End an attempt whose ranks cannot be started here."""
        failure = Failure(message=message, log_tail=tail, cause=Cause.NOT_STARTED)
        self._end(attempt, Outcome.FAILED, failure)

    def _end(self, attempt: Attempt, ended: Outcome, failure: Failure | None) -> None:
        attempt.stage = Stage.ENDED
        attempt.outcome = ended
        attempt.failure = failure
        self.shipper.ended(attempt.token)
        self._changed()

    # -- what shall be --------------------------------------------------------------------------

    def report_acked(self, sent: float) -> None:
        """Note that the coordinator took a report sent at this `isolation.now`."""
        self._acked_at = max(sent, self._acked_at)
        for attempt in self._attempts.values():
            if attempt.stage in (Stage.READY, Stage.LIVE):
                self._write_last_ack(attempt.folder, attempt.launch)

    def _write_last_ack(self, folder: AttemptFolder, launch: Launch) -> None:
        if launch.isolation_seconds is not None:
            # A full disk brings the end nearer, and must not bring that of this agent.
            with contextlib.suppress(OSError):
                isolation.write_last_ack(folder, self._acked_at)

    def desire(self, assignments: list[Assignment]) -> None:
        """Take up what the coordinator wants; complete, so it replaces what was wanted before."""
        self._desired = {a.launch.token: a for a in assignments}

    def reconcile(self) -> None:
        """Do what leads from what is to what shall be. Cheap when nothing is to be done."""
        wanted = None
        if self._desired is not None:
            wanted = {
                token: DesiredAttempt.of(a)
                for token, a in self._desired.items()
                if token in self._attempts or not self._is_leaving(token.job_id)
            }
        found = {t: a.observe(self.shipper.shipped(t)) for t, a in self._attempts.items()}
        for action in decide(wanted, found, self._launcher.launched, agent_ends=self._agent_ends):
            self._act(action)

    def leave(self) -> None:
        """Prepare for the agent's end: start nothing; let attempts save, if they can, and end.

        Ends stay here, marked, until the coordinator knows them: from this agent or the next.
        """
        self._agent_ends = True
        self.refresh()
        for attempt in self._attempts.values():
            early = attempt.stage in (Stage.PLANNING, Stage.PREPARING)
            if early and attempt.task is not None:
                attempt.task.cancel()
        for attempt in self.live():
            is_failing = attempt.status is not None and attempt.status.failure is not None
            if not is_failing:
                with contextlib.suppress(OSError):
                    attempt.stopped_mark.touch()
            attempt.final_command = Command.PAUSE
        self.reconcile()

    def leave_at_once(self) -> None:
        """End tasks that have not saved yet. A script that was asked to end has its grace."""
        for attempt in self.live_tasks():
            attempt.final_command = Command.STOP
        self.reconcile()

    def stop_all(self) -> None:
        """End every rank of this host and forget it, whatever is desired."""
        self._desired = {}
        self.reconcile()

    def _act(self, action: Action) -> None:
        match action:
            case Plan(token):
                attempt = self._take_up(token, Stage.PLANNING)
                self._begin(attempt, self._launcher.plan(attempt))
            case Prepare(token):
                attempt = self._take_up(token, Stage.PREPARING)
                self._begin(attempt, self._prepare(attempt))
            case Start(token):
                attempt = self._attempts[token]
                self._begin(attempt, self._launcher.start(attempt))
            case SendCommand(token, command):
                folder_ipc.send_command(self._attempts[token].folder, command)
            case RequestGradients(token, gradients):
                _request_gradients(self._attempts[token], gradients)
            case Regroup(token, onto):
                self._regroup(self._attempts[token], onto)
            case EndAsGeneration(token, onto):
                self._rename(self._attempts[token], onto)
                self._changed()
            case ReportNotStarted(token, ended, reason):
                self._report_not_started(token, ended, reason)
            case CleanUp(token):
                leaving = self._clean_up(self._attempts.pop(token))
                self._leaving[token] = asyncio.create_task(leaving, name=f"clean up {token}")

    def _regroup(self, attempt: Attempt, onto: FencingToken) -> None:
        """Give the shim the launch of a later generation. Until it has taken it up (`_follow`) this
        is done again and again."""
        assert self._desired is not None
        launch = keep_prepared(self._desired[onto].launch, attempt.launch)
        with contextlib.suppress(OSError):  # a full disk: there will be another try
            self._launcher.note_launched(onto)
            replace_json(attempt.folder.launch, launch)
            folder_ipc.notify_launch(attempt.folder)

    def _begin(self, attempt: Attempt, work: Coroutine[Any, Any, None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except asyncio.CancelledError:
                raise
            except CannotStartError as error:
                self._end(attempt, Outcome.FAILED, error.failure)
            except Exception as error:
                logger.exception("attempt_cannot_continue", **attempt.log_fields)
                problem = f"{type(error).__name__}: {error}"
                self._refuse(attempt, f"this host cannot run the attempt: {problem}")
            finally:
                attempt.task = None
                self._changed()

        attempt.task = asyncio.create_task(guarded(), name=f"attempt {attempt.token}")

    def _take_up(self, token: FencingToken, stage: Stage) -> Attempt:
        assert self._desired is not None
        before = self._attempts.get(token)
        if before is not None and before.task is not None:
            before.task.cancel()  # it plans what another agent of this host has planned
        launch = self._desired[token].launch
        attempt = Attempt(token, self._data_dir.attempt(token), launch, stage)
        self._attempts[token] = attempt
        return attempt

    async def _prepare(self, attempt: Attempt) -> None:
        await self._launcher.prepare(attempt, self._write_last_ack)
        attempt.stage = Stage.READY
        self.shipper.add(attempt.token, attempt.folder, attempt.launch)
        # Not by way of the next look at things: a job's first step is near.
        await self._launcher.start(attempt)

    async def _sweep(self, attempt: Attempt) -> None:
        """Clean up after a shim that died without an outcome, then report in its place."""
        while left := await asyncio.to_thread(processes.marked, attempt.folder.path):
            processes.send(left, signal.SIGKILL)
            await asyncio.sleep(SWEEP_SECONDS)
        asked = attempt.status.command if attempt.status is not None else Command.RUN
        failure = None
        if asked is not Command.STOP and not attempt.ended_with_agent:
            failure = Failure(
                message="the process that supervised the ranks was killed",
                cause=Cause.KILLED,
                time=time.time(),
                log_tail=outcome.last_lines(folder_ipc.log_path(attempt.folder)),
            )
        ended = Outcome.FAILED if failure is not None else Outcome.STOPPED
        self._write_end(attempt, ended, failure)
        self._end(attempt, ended, failure)

    def _write_end(self, attempt: Attempt, ended: Outcome, failure: Failure | None) -> None:
        """Keep the end for the next agent."""
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
        with contextlib.suppress(OSError):
            replace_json(attempt.folder.status, attempt.status)

    def _report_not_started(self, token: FencingToken, ended: Outcome, reason: str) -> None:
        """End an attempt that never ran here and never will."""
        attempt = self._attempts.get(token)
        if attempt is None:
            assert self._desired is not None
            launch = self._desired[token].launch
            attempt = Attempt(token, self._data_dir.attempt(token), launch, Stage.ENDED)
            self._attempts[token] = attempt
        if attempt.task is not None:
            attempt.task.cancel()
        # Removed before it is reported: a shim that is on its way finds nothing to run.
        hidden = _hide_folder(attempt.folder)
        attempt.removal = asyncio.create_task(threads.finish(_remove_hidden, hidden))
        failure = Failure(message=reason) if ended is Outcome.FAILED else None
        self._end(attempt, ended, failure)

    def _is_leaving(self, job_id: str) -> bool:
        """Return whether an attempt of the job is being removed; the next one waits."""
        return any(token.job_id == job_id for token in self._leaving)

    async def _clean_up(self, attempt: Attempt) -> None:
        job_id = attempt.token.job_id
        try:
            if attempt.task is not None:
                attempt.task.cancel()
                # It removes what it has made so far.
                await asyncio.wait({attempt.task})
            if attempt.removal is not None:
                await attempt.removal
            await self.shipper.remove(attempt.token)
            await threads.finish(_remove_hidden, _hide_folder(attempt.folder))
            if all(other.job_id != job_id for other in self._attempts):
                folder = self._data_dir.checkpoints(job_id)
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        finally:
            del self._leaving[attempt.token]
            self._changed()

    # -- the agent's own end --------------------------------------------------------------------

    async def close(self) -> None:
        """Leave everything as it is, for the next agent to find."""
        tasks = [a.task for a in self._attempts.values() if a.task is not None]
        for task in tasks:
            task.cancel()
        removals = [a.removal for a in self._attempts.values() if a.removal is not None]
        await asyncio.gather(*tasks, *removals, *self._leaving.values(), return_exceptions=True)
        await self.shipper.close()


def _request_gradients(attempt: Attempt, gradients: int) -> None:
    # Without a status there is no page yet, or one that the shim is about to write.
    if attempt.status is not None:
        Control.ask(attempt.folder.control, gradients)
        attempt.gradients = gradients


def _hide_folder(folder: AttemptFolder) -> Path:
    """Take an attempt's folder away from a shim that would begin there; where it is now."""
    hidden = folder.path.with_name(f".preparing-{folder.path.name}-{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        folder.path.rename(hidden)
    return hidden


def _remove_hidden(hidden: Path) -> None:
    """Remove its files: with the code of a job there are up to 20,000."""
    shutil.rmtree(hidden, ignore_errors=True)
    with contextlib.suppress(OSError):
        # Not empty while another attempt of the job has its folder there.
        hidden.parent.rmdir()
