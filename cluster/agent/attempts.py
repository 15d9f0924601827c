"""The attempts of this host: the actions that lead from what is found to what is desired."""

import asyncio
import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator

from trainhall.cluster.agent import threads
from trainhall.cluster.agent.attempt import Attempt, keep_prepared
from trainhall.cluster.agent.coordinator_link.http_api import CoordinatorApi
from trainhall.cluster.agent.data_dir import DataDir
from trainhall.cluster.agent.job_settings import JobSettings
from trainhall.cluster.agent.launch.launcher import Launcher
from trainhall.cluster.agent.launch.warm_client import WarmParent
from trainhall.cluster.agent.observed import ObservedAttempts, hide_folder, remove_hidden
from trainhall.cluster.agent.os_support import accounts
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
    RequestProfile,
    SendCommand,
    Stage,
    Start,
    decide,
)
from trainhall.cluster.agent.shim import folder_ipc, isolation
from trainhall.cluster.agent.shipping.shipping import Shipper
from trainhall.cluster.wire.protocol import Assignment
from trainhall.training.fencing import FencingToken
from trainhall.training.link.control import Control
from trainhall.training.link.failure import Failure
from trainhall.training.link.folder import AttemptFolder, replace_json
from trainhall.training.link.launch import Command, Launch
from trainhall.training.link.profiling.messages import ProfileRequest
from trainhall.training.link.status import Outcome


class Attempts:
    """All attempts of this host. Every method may be called at any time and in any order."""

    def __init__(
        self,
        data_dir: DataDir,
        api: CoordinatorApi,
        warm: WarmParent,
        changed: Callable[[], None],
        settings: JobSettings,
    ) -> None:
        self._data_dir = data_dir
        self._launcher = Launcher(data_dir, api, warm, settings, changed)
        self._changed = changed
        self._desired: dict[FencingToken, Assignment] | None = None
        self._agent_ends = False
        self._acked_at = float("-inf")
        """When the newest report that the coordinator took was sent (`isolation.now`)."""
        self._leaving: dict[FencingToken, asyncio.Task[None]] = {}
        """Attempts whose folders are being removed."""
        self.shipper = Shipper(api, changed, data_dir.code)
        self.observed = ObservedAttempts(
            data_dir,
            self.shipper,
            changed,
            lambda: self._launcher.pids | self._launcher.containers.monitors,
            settings.cgroups,
        )

    async def remove_left_containers(self) -> None:
        """Remove the containers of attempts that are over, which an earlier agent has left."""
        await self._launcher.containers.remove_others(
            lambda: [attempt.folder.path for attempt in self.observed.by_token.values()]
        )

    def refresh(self) -> bool:
        """Poll every attempt that has not ended; True when something changed."""
        self._launcher.reap()
        return self.observed.refresh()

    def watched(self) -> bool:
        """Return whether any process may still end without reporting."""
        return bool(self._launcher.children or self.observed.live())

    def all_reported(self) -> bool:
        """Return whether the coordinator knows every outcome and has all that was written."""
        return not self._leaving and all(
            a.stage is not Stage.ENDED for a in self.observed.by_token.values()
        )

    def empty(self) -> bool:
        """Return whether nothing of any attempt is left on this host."""
        return not self.observed.by_token and not self._leaving

    def report_acked(self, sent: float) -> None:
        """Note that the coordinator took a report sent at this `isolation.now`."""
        self._acked_at = max(sent, self._acked_at)
        for attempt in self.observed.by_token.values():
            if attempt.stage in (Stage.READY, Stage.LIVE):
                self._write_last_ack(attempt.folder, attempt.launch)

    def _write_last_ack(self, folder: AttemptFolder, launch: Launch) -> None:
        if launch.isolation_seconds is not None:
            # A full disk brings the end nearer, and must not bring that of this agent.
            with (
                contextlib.suppress(OSError),
                accounts.acting_as(accounts.owner_of(folder.path)),
            ):
                isolation.write_last_ack(folder, self._acked_at)

    def desire(self, assignments: list[Assignment]) -> None:
        """Take up what the coordinator wants; complete, so it replaces what was wanted before."""
        self._desired = {a.launch.token: a for a in assignments}

    def reconcile(self) -> None:
        """Bring the attempts to their desired state. Cheap when they are there."""
        wanted = None
        if self._desired is not None:
            wanted = {
                token: DesiredAttempt.of(a)
                for token, a in self._desired.items()
                if token in self.observed.by_token or not self._is_leaving(token.job_id)
            }
        found = {t: a.observe(self.shipper.shipped(t)) for t, a in self.observed.by_token.items()}
        for action in decide(wanted, found, self._launcher.launched, agent_ends=self._agent_ends):
            self._act(action)

    def leave(self) -> None:
        """Prepare for the agent's end: start nothing; let attempts save, if they can, and end.

        Ends stay here, marked, until the coordinator knows them: from this agent or the next.
        """
        self._agent_ends = True
        self.refresh()
        for attempt in self.observed.by_token.values():
            early = attempt.stage in (Stage.PLANNING, Stage.PREPARING)
            if early and attempt.task is not None:
                attempt.task.cancel()
        for attempt in self.observed.live():
            is_failing = attempt.status is not None and attempt.status.failure is not None
            if not is_failing:
                with contextlib.suppress(OSError), attempt.as_owner():
                    attempt.stopped_mark.touch()
            attempt.final_command = Command.PAUSE
        self.reconcile()

    def leave_at_once(self) -> None:
        """End tasks that have not saved yet. A script that was asked to end has its grace."""
        for attempt in self.observed.live_tasks():
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
                self.observed.begin(attempt, self._launcher.plan(attempt))
            case Prepare(token):
                attempt = self._take_up(token, Stage.PREPARING)
                self.observed.begin(attempt, self._prepare(attempt))
            case Start(token):
                attempt = self.observed.by_token[token]
                self.observed.begin(attempt, self._launcher.start(attempt))
            case SendCommand(token, command):
                attempt = self.observed.by_token[token]
                with attempt.as_owner():
                    folder_ipc.send_command(attempt.folder, command)
            case RequestGradients(token, gradients):
                _request_gradients(self.observed.by_token[token], gradients)
            case RequestProfile(token, request):
                _request_profile(self.observed.by_token[token], request)
            case Regroup(token, onto):
                self._regroup(self.observed.by_token[token], onto)
            case EndAsGeneration(token, onto):
                self.observed.rename(self.observed.by_token[token], onto)
                self._changed()
            case ReportNotStarted(token, ended, reason):
                self._report_not_started(token, ended, reason)
            case CleanUp(token):
                leaving = self._clean_up(self.observed.by_token.pop(token))
                self._leaving[token] = asyncio.create_task(leaving, name=f"clean up {token}")

    def _regroup(self, attempt: Attempt, onto: FencingToken) -> None:
        """Give the shim the launch of a later generation. Until it has taken it up (`_follow`) this
        is done again and again."""
        assert self._desired is not None
        launch = keep_prepared(self._desired[onto].launch, attempt.launch)
        with contextlib.suppress(OSError):  # a full disk: there will be another try
            self._launcher.note_launched(onto)
            with attempt.as_owner():
                replace_json(attempt.folder.launch, launch)
                folder_ipc.notify_launch(attempt.folder)

    def _take_up(self, token: FencingToken, stage: Stage) -> Attempt:
        assert self._desired is not None
        before = self.observed.by_token.get(token)
        if before is not None and before.task is not None:
            before.task.cancel()  # it plans what another agent of this host has planned
        launch = self._desired[token].launch
        attempt = Attempt(token, self._data_dir.attempt(token), launch, stage)
        self.observed.by_token[token] = attempt
        return attempt

    async def _prepare(self, attempt: Attempt) -> None:
        await self._launcher.prepare(attempt, self._write_last_ack)
        attempt.stage = Stage.READY
        self.shipper.add(attempt.token, attempt.folder, attempt.launch)
        # Not at the next poll: a job's first step is near.
        await self._launcher.start(attempt)

    def _report_not_started(self, token: FencingToken, ended: Outcome, reason: str) -> None:
        """End an attempt that never ran here and never will."""
        attempt = self.observed.by_token.get(token)
        if attempt is None:
            assert self._desired is not None
            launch = self._desired[token].launch
            attempt = Attempt(token, self._data_dir.attempt(token), launch, Stage.ENDED)
            self.observed.by_token[token] = attempt
        if attempt.task is not None:
            attempt.task.cancel()
        # Removed before it is reported: a shim that is on its way finds nothing to run.
        hidden = hide_folder(attempt.folder)
        attempt.removal = asyncio.create_task(threads.finish(remove_hidden, hidden))
        failure = Failure(message=reason) if ended is Outcome.FAILED else None
        self.observed.end(attempt, ended, failure)

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
            await self._keep_outputs(attempt)
            await self.shipper.remove(attempt.token)
            if attempt.launch.container is not None:
                await self._launcher.containers.remove(attempt.folder.path)
            self.observed.remove_cgroup(attempt.folder)
            await threads.finish(remove_hidden, hide_folder(attempt.folder))
            if all(other.job_id != job_id for other in self.observed.by_token):
                folder = self._data_dir.checkpoints(job_id)
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        finally:
            del self._leaving[attempt.token]
            self._changed()

    async def _keep_outputs(self, attempt: Attempt) -> None:
        """Keep the files of an attempt that another one may follow."""
        outputs = self.shipper.outputs_of(attempt.token)
        if outputs is None or not outputs.known or attempt.outcome is Outcome.COMPLETED:
            return
        job_id, owner = attempt.token.job_id, accounts.owner_of(attempt.folder.path)

        def keep() -> None:
            self._launcher.kept.keep(job_id, outputs.unchanged(), owner)

        with contextlib.suppress(OSError):  # a failing disk: they are fetched
            await threads.finish(keep)

    def start_inside(
        self, job_id: str, attempt: int, module: str, fd: int
    ) -> subprocess.Popen[bytes] | None:
        """Start a module within an attempt (`Launcher.start_inside`); None: it does not run here.

        Raises:
            OSError: no process can be started.
            CannotStartError: not with the attempt's user.
        """
        found = self._live(job_id, attempt)
        return self._launcher.start_inside(found, module, fd) if found is not None else None

    @contextlib.contextmanager
    def session(self, job_id: str, attempt: int) -> Iterator[None]:
        """Count a session of a user beside an attempt until the block ends."""
        found = self._live(job_id, attempt)
        if found is None:
            yield
            return
        found.sessions += 1
        self._changed()
        try:
            yield
        finally:
            found.sessions -= 1
            self._changed()

    def _live(self, job_id: str, attempt: int) -> Attempt | None:
        for found in self.observed.live():
            if (found.token.job_id, found.token.attempt) == (job_id, attempt):
                return found
        return None

    async def close(self) -> None:
        """Leave everything as it is, for the next agent to find."""
        tasks = [a.task for a in self.observed.by_token.values() if a.task is not None]
        for task in tasks:
            task.cancel()
        removals = [a.removal for a in self.observed.by_token.values() if a.removal is not None]
        await asyncio.gather(*tasks, *removals, *self._leaving.values(), return_exceptions=True)
        await self.shipper.close()


def _request_gradients(attempt: Attempt, gradients: int) -> None:
    # Without a status there is no page yet, or one that the shim is about to write.
    if attempt.status is not None:
        # The job may have removed or replaced it.
        with contextlib.suppress(OSError), attempt.as_owner():
            Control.ask(attempt.folder.control, gradients)
        attempt.gradients = gradients


def _request_profile(attempt: Attempt, request: ProfileRequest) -> None:
    if attempt.status is not None:
        # As above; on a full disk there is another try.
        with contextlib.suppress(OSError), attempt.as_owner():
            replace_json(attempt.folder.profile(request.number), request)
            Control.ask_profile(attempt.folder.control, request.number)
            attempt.profile = request.number
