"""The shim: supervises one attempt's ranks on one host, and outlives the agent.

It is one thread around one `select`: children that end, commands that arrive, times that come.

    starting ──ranks started──▶ running ◀──later launch── regrouping
                                 │   └──a rank failed that may be replaced──▶│
          command, failure,      ▼                                           │ not replaced in time,
          hang, isolation     stopping ◀─────────────────────────────────────┘ command
                                 │ the last rank has ended
                                 ▼
                               exited

`starting` ends in `stopping` too, where the rendezvous cannot be opened or a command comes first.
While it is `regrouping` the agent sees `running` with `failed_ranks`. In `stopping` the ranks save
and leave on their own, or an `Escalation` of signals ends them.
"""

import contextlib
import math
import os
import select
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from trainhall.cluster.agent.os_support import linux, processes
from trainhall.cluster.agent.shim import folder_ipc, isolation, outcome
from trainhall.cluster.agent.shim.escalation import Escalation, ScriptPause
from trainhall.cluster.agent.shim.hang.policy import HangPolicy
from trainhall.cluster.agent.shim.rank_group import RankGroup, not_started
from trainhall.cluster.agent.shim.rank_table import RankEntry, can_be_replaced, failed_rank
from trainhall.cluster.agent.shim.status_file import RETRY_SECONDS, StatusFile
from trainhall.cluster.agent.shim.tracking import open_tracking
from trainhall.training.link.control import STUCK_SECONDS, Control
from trainhall.training.link.failure import Cause, Failure
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.launch import Command, Launch, load_launch
from trainhall.training.link.progress import newest_step, read
from trainhall.training.link.secrets.attempt_secrets import take_secrets
from trainhall.training.link.secrets.masking import Masker
from trainhall.training.link.status import (
    EXIT_PAUSED,
    EXIT_STOPPED,
    FailedRank,
    Outcome,
    RankState,
    ShimStatus,
)

AGREE_SECONDS = 1.0
"""Time for the ranks of a task to agree on where to stop."""
TERMINATE_SECONDS = 0.4
"""Between SIGTERM and SIGKILL for a task: together with the above less than two seconds."""
PEERS_SECONDS = 1.0
"""The same for those that are left when one rank of a task has failed."""
LEAVE_SECONDS = 30.0
"""For ranks that a regrouping leaves out, and so long their devices may not be free: they leave
after a step that all agree on. It is longer for those whose steps are long."""
LEAVE_STEPS = 3
"""The same in longest steps so far."""
SETTLE_SECONDS = 0.1
"""Time within which a killed rank's end may be noticed after the failures that it caused."""
SWEEP_SECONDS = 0.02
"""Between two polls for processes that are left; it rises while some cannot be ended."""
POLL_SECONDS = 1.0
"""Between two polls for ranks that have ended, whatever becomes of the signal that announces it."""


@dataclass
class Shim:
    folder: AttemptFolder
    launch: Launch
    fork: bool
    """Built-in tasks run in forks of this process."""
    attached: bool = False
    doorbell: Path | None = None
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables of the ranks."""

    _failure: Failure | None = None
    _command: Command = Command.RUN
    """The highest command so far."""
    _signalled: bool = False
    """The ranks were sent SIGTERM or SIGKILL because of it."""
    _pause: ScriptPause | None = None
    _isolated: bool = False
    _failed_ranks: list[FailedRank] = field(default_factory=list)
    _regroup_by: float = math.inf
    """When (monotonic) the ranks that are left need no longer wait for those that have failed, or
    those that are to leave have had their time."""

    def __post_init__(self) -> None:
        self._is_script = self.launch.spec.script is not None
        # An attached shim's ranks run for a command that reads their own files alone.
        self._tracking = None if self.attached else open_tracking(self.folder, self.launch)
        self._group = RankGroup(
            self.folder, self.launch, self._tracking, fork=self.fork, secrets=self.secrets
        )
        self._masker = Masker(self.secrets.values())
        self._ranks = self._group.table
        self._escalation = Escalation()
        self._status = StatusFile(self.folder, self.doorbell)
        self._memory_kills = outcome.out_of_memory_kills()
        self._isolation = isolation.watch(self.folder, self.launch)
        self._hangs = HangPolicy(self.folder, self.launch)

    def run(self) -> None:
        """Supervise until no process of the attempt is left on this host."""
        linux.adopt_orphans()
        self._wakeup = processes.wake_on_signals()
        try:
            self._control = Control(self.folder.control, create=True)
            self._commands = folder_ipc.make_pipe(folder_ipc.command_path(self.folder))
        except OSError as error:
            self._status.publish_end(self._current("exited", Outcome.FAILED, not_started(error)))
            return
        self._publish()
        self._check_isolation()
        self._failure = self._group.open()
        self._start_ranks()
        while not self._is_over():
            self._wait()
            self._reap()
            self._check_hangs()
            self._check_regrouping()
            self._check_isolation()
            self._escalate()
        self._group.close()
        self._end_everything()
        if self._tracking is not None:
            self._tracking.close()
        if self._group.masked is not None:
            self._group.masked.close()
        ended, failure = outcome.outcome_of(self._ranks.states, self._context(), self._failure)
        folder_ipc.command_path(self.folder).unlink(missing_ok=True)
        self._status.publish_end(self._current("exited", ended, failure))

    def _is_over(self) -> bool:
        if not self._group.has_started:
            return self._failure is not None or self._signalled
        waits = bool(self._failed_ranks) and self._failure is None
        return not waits and not self._ranks.alive()

    def _start_ranks(self) -> None:
        if self._failure is None and not self._signalled:
            with self._failing_unless_started():
                self._group.start(self._control)
            self._publish()

    @contextlib.contextmanager
    def _failing_unless_started(self) -> Iterator[None]:
        """Fail where the disk or the table of processes is full."""
        try:
            yield
        except OSError as error:
            self._fail(not_started(error))

    # -- events ---------------------------------------------------------------------------------

    def _wait(self) -> None:
        """Wait until a child ends, a command comes, or a time has come, and take the commands."""
        masked = self._group.masked
        pipes = masked.pipes if masked is not None else []
        sources = [self._wakeup, self._commands, *([0] if self.attached else []), *pipes]
        sources += self._group.waits_for
        sources += self._tracking.waits_for if self._tracking is not None else []
        until = self._next_time()
        timeout = None if until == math.inf else max(0.0, until - time.monotonic())
        ready, _, _ = select.select(sources, [], [], timeout)
        for fd in ready:
            if fd == self._wakeup:
                if set(folder_ipc.drain(fd)) & {signal.SIGTERM, signal.SIGINT}:
                    self._obey(Command.STOP)
            elif fd == self._commands:
                self._take_commands(folder_ipc.drain(fd))
            elif fd in self._group.waits_for:
                pass  # a rank has ended, which is seen to at once
            elif masked is not None and fd in pipes:
                masked.read(fd)
            elif self._tracking is not None and fd in self._tracking.waits_for:
                self._tracking.serve()
            elif not os.read(0, 4096):
                self.attached = False
                self._obey(Command.STOP)
        self._status.flush()

    def _next_time(self) -> float:
        """Return when (monotonic) the next timed action is due."""
        now = time.monotonic()
        times = [self._escalation.due, self._regroup_by]
        if self._pause is not None:
            times.append(self._pause.due)
        if self._watches_hangs:
            times.append(self._hangs.due)
        if self._ranks.alive():
            times.append(now + POLL_SECONDS)
        if self._isolation is not None:
            times.append(now + isolation.CHECK_SECONDS)
        if not self._status.is_written:
            times.append(now + RETRY_SECONDS)
        return min(times)

    def _take_commands(self, data: bytes) -> None:
        for byte in data:
            if byte == folder_ipc.LAUNCH:
                self._take_launch()
            elif chr(byte) in ("1", "2"):
                self._obey(Command(int(chr(byte))))

    def _obey(self, command: Command) -> None:
        if command <= self._command:
            return
        self._command = command
        self._control.send(command)
        if not self._group.has_started:
            # Nothing has been trained yet; there is nothing to save.
            self._signalled = True
        elif self._is_script and command is Command.PAUSE and self._agrees():
            # Its ranks agree on a step, as those of a task do, unless they stop asking.
            self._pause = ScriptPause(self._control)
        elif self._is_script:
            self._signalled = True
            self._escalation.schedule(0.0, self.launch.spec.recovery.grace_seconds)
        elif command is Command.STOP:
            self._escalation.schedule(AGREE_SECONDS, TERMINATE_SECONDS)
        self._publish()

    def _agrees(self) -> bool:
        """Return whether the script asks after every step if it has to stop."""
        return Control.is_listened(self.folder.control)

    # -- ranks that end -------------------------------------------------------------------------

    def _reap(self) -> None:
        ended = self._collect()
        culprit = self._culprit(ended) if self._failure is None else None
        if culprit is not None:
            self._take_failures(sorted(ended, key=lambda member: member.state is not culprit))
        if ended:
            self._send_off_late_ones()
            self._publish()

    def _culprit(self, ended: list[RankEntry]) -> RankState | None:
        """Return the first rank to blame among `ended`, to which late ends are added."""
        culprit = outcome.first_failing([member.state for member in ended], self._context())
        if culprit is None or culprit.signal is not None or not self._ranks.alive():
            return culprit
        # A process that a signal ends closes its connections before it can be waited for, so that a
        # peer which they broke may be seen to end first.
        time.sleep(SETTLE_SECONDS)
        later = self._collect()
        ended += later
        killed = [member.state for member in later if member.state.signal is not None]
        return outcome.first_failing(killed, self._context()) or culprit

    def _collect(self) -> list[RankEntry]:
        """Return ranks that have ended since the last call, except those that were to leave."""
        ended: list[RankEntry] = []
        reaped, store_code = self._group.reap()
        for member in reaped:
            if not any(member is current for current in self._ranks.current):
                self._publish()
            elif self._has_left(member):
                with self._failing_unless_started():
                    self._ranks.renew(member)
                self._publish()
            else:
                ended.append(member)
        if store_code is not None and self._failure is None and not self._signalled:
            self._fail(
                Failure(
                    exit_code=max(store_code, 0),
                    message="the rendezvous store ended; the ranks can't find each other",
                    cause=Cause.KILLED,
                    log_tail=outcome.last_lines(folder_ipc.log_path(self.folder)),
                )
            )
        return ended

    def _has_left(self, member: RankEntry) -> bool:
        """Return whether it left with an earlier launch; the present one lists its device again."""
        is_over = self._failure is not None or self._ranks.have_completed
        continues = not is_over and self._command is not Command.STOP
        # One that began with this launch has another reason: in its place, a process would meet
        # what it left in the rendezvous.
        began_before = member.state.generation < self.launch.generation
        return continues and began_before and member.state.exit_code == EXIT_STOPPED

    def _send_off_late_ones(self) -> None:
        """Stop ranks that came for a generation before which the job was completed. Those that
        completed it together do not look for commands any more."""
        if self.launch.in_place and self._ranks.have_completed:
            self._control.send(Command.STOP)

    def _take_failures(self, ended: list[RankEntry]) -> None:
        """Ask for replacements of ranks that failed, or end the attempt.

        Args:
            ended: the first to blame before the others.
        """
        if self._group.masked is not None:
            self._group.masked.drain()  # the last lines say why
        for member in ended:
            if self._failure is not None or not outcome.failed(member.state, self._context()):
                continue
            failure = self._hangs.failure_of_killed(member.state.pid) or outcome.describe_failure(
                self.folder, member.state, out_of_memory=self._memory_ran_out()
            )
            alone = not any(m.is_alive for m in self._ranks.current)
            replaced = self._command is Command.RUN and can_be_replaced(
                self.launch, member.state, failure, alone=alone
            )
            if not replaced:
                self._fail(self._failed_ranks[0].failure if self._failed_ranks else failure)
                continue
            failure.step = newest_step(self.folder.path)
            self._failed_ranks.append(failed_rank(self.launch, member, failure))
            patience = self.launch.spec.recovery.regroup_seconds + PEERS_SECONDS
            self._regroup_by = min(self._regroup_by, time.monotonic() + patience)

    def _fail(self, failure: Failure) -> None:
        """End the other ranks too: they wait in collectives for one that will not come."""
        failure.step = newest_step(self.folder.path)
        self._failure = failure
        grace = self.launch.spec.recovery.grace_seconds if self._is_script else PEERS_SECONDS
        self._escalation.schedule(0.0, grace)

    # -- regrouping -----------------------------------------------------------------------------

    def _check_regrouping(self) -> None:
        """See that failed ranks are replaced in time, and that those that are to leave do."""
        late = time.monotonic() >= self._regroup_by
        if late:
            self._regroup_by = math.inf
            processes.send_groups(_pids(self._ranks.leaving), signal.SIGKILL)
        if not self._failed_ranks or self._failure is not None:
            return
        alone = self.launch.num_nodes == 1 and not self._ranks.alive()
        if late or alone or self._command is not Command.RUN:
            self._fail(self._failed_ranks[0].failure)
            self._publish()

    def _take_launch(self) -> None:
        """Continue with the launch in the folder, if it is of a later generation."""
        is_over = self._failure is not None or self._ranks.have_completed
        if is_over or self._command is Command.STOP:
            return
        launch = read_launch(self.folder)
        if isinstance(launch, Failure):
            self._fail(launch)
            self._publish()
            return
        if not launch.in_place or launch.generation <= self.launch.generation:
            return
        try:
            failure = self._group.regroup(launch)
        except OSError:
            # A full disk. The ranks continue as they are, and the agent sends the launch again.
            return
        if failure is not None:
            self._fail(failure)
            self._publish()
            return
        self.launch = launch
        self._failed_ranks = []
        self._hangs.reset(time.monotonic() + STUCK_SECONDS)
        self._regroup_by = self._leaving_ends()
        self._start_ranks()

    def _leaving_ends(self) -> float:
        """Return when (monotonic) the time of the ranks that the launch leaves out is up."""
        if not self._ranks.leaving:
            return math.inf
        pids = _pids(self._ranks.leaving)
        pages = [page for pid in pids if (page := read(self.folder.path, pid)) is not None]
        longest = max((max(p.longest_seconds, p.first_seconds) for p in pages), default=0.0)
        return time.monotonic() + max(LEAVE_SECONDS, LEAVE_STEPS * longest)

    # -- hangs and isolation --------------------------------------------------------------------

    @property
    def _watches_hangs(self) -> bool:
        """Return whether hangs count: ranks that fail or are to stop have time limits already."""
        runs = self._group.has_started and self._failure is None and not self._failed_ranks
        return runs and self._command is not Command.STOP

    def _check_hangs(self) -> None:
        now, stall = time.monotonic(), self._hangs.stall
        if self._watches_hangs and now >= self._hangs.due:
            left = self._isolation.seconds_left() if self._isolation is not None else math.inf
            failure = self._hangs.poll(now, self._live(), self.launch, seconds_left=left)
            if failure is not None:
                self._fail(failure)
        if (stall is None) != (self._hangs.stall is None):
            self._publish()

    def _live(self) -> dict[int, int]:
        """Return the live ranks of the present generation, each with its process."""
        alive = [member.state for member in self._ranks.current if member.is_alive]
        return {state.rank: state.pid for state in alive if state.pid is not None}

    def _check_isolation(self) -> None:
        """End the ranks before the job starts elsewhere, under `on_isolation: stop`."""
        if self._isolation is None:
            return
        saves_nothing = self._is_script and not self._agrees()
        step = self._isolation.poll(
            self.launch.spec.recovery.grace_seconds if saves_nothing else math.inf
        )
        if step is isolation.Step.CONTINUE:
            return
        self._isolated = self._isolated or self._command is Command.RUN
        self._obey(Command.PAUSE)
        if step is isolation.Step.KILL:
            self._obey(Command.STOP)
            self._escalation.schedule(0.0, 0.0)

    # -- stopping -------------------------------------------------------------------------------

    def _escalate(self) -> None:
        if self._pause is not None and time.monotonic() >= self._pause.due:
            self._pause = None
            self._escalation.schedule(0.0, self.launch.spec.recovery.grace_seconds)
        for number in self._escalation.take_due():
            alive = _pids(self._ranks.alive())
            if alive and self._failure is None:
                self._signalled = True
            # Each rank leads a group; SIGTERM reaches what it started there, as under `torchrun`.
            processes.send_groups(alive, number)

    def _end_everything(self) -> None:
        """Leave no process of the attempt, however it was detached."""
        pause = SWEEP_SECONDS
        while True:
            left = processes.descendants() | processes.marked(self.folder.path)
            processes.send(left, signal.SIGKILL)
            processes.reap_all()
            if not left:
                return
            select.select([self._wakeup], [], [], pause)
            folder_ipc.drain(self._wakeup)
            pause = min(pause * 1.2, 1.0)

    # -- the status -----------------------------------------------------------------------------

    def _context(self) -> outcome.AttemptContext:
        asked = self._command
        if asked is Command.RUN and self._has_paused():
            asked = Command.PAUSE
        return outcome.AttemptContext(self._is_script, asked, self._signalled)

    def _has_paused(self) -> bool:
        """Return whether ranks left to pause without a command, as `training.pause_at` says."""
        codes = {state.exit_code for state in self._ranks.states}
        return bool(self.launch.spec.training.pause_at and codes & {EXIT_PAUSED, EXIT_STOPPED})

    def _memory_ran_out(self) -> bool:
        return outcome.out_of_memory_kills() > self._memory_kills

    def _phase(self) -> str:
        if self._command is not Command.RUN or self._failure is not None:
            return "stopping"
        return "running" if self._group.has_started else "starting"

    def _publish(self) -> None:
        self._status.publish(self._current(self._phase()))

    def _current(
        self, phase: str, ended: Outcome | None = None, failure: Failure | None = None
    ) -> ShimStatus:
        found = failure or self._failure
        return ShimStatus.model_validate(
            {
                "job_id": self.launch.job_id,
                "attempt": self.launch.attempt,
                "generation": self.launch.generation,
                "phase": phase,
                "command": self._command,
                "ranks": [rank.model_dump() for rank in self._ranks.states],
                "failed_ranks": [self._masked(rank.model_dump()) for rank in self._failed_ranks],
                "leaving": [member.slot.device_index for member in self._ranks.leaving],
                "rendezvous": self._group.rendezvous,
                "outcome": ended,
                "failure": found and self._masked(found.model_dump()),
                "isolated": self._isolated,
                "stall": self._hangs.stall,
            }
        )

    def _masked(self, data: dict[str, object]) -> dict[str, object]:
        """Return data that leaves the host without secrets, which scripts may report themselves."""
        masked: dict[str, object] = self._masker.json(data) if self._masker else data
        return masked


def read_secrets(folder: AttemptFolder, launch: Launch) -> Mapping[str, str] | Failure:
    """Take the secrets of a launch, which are nowhere else from then on."""
    if not launch.spec.secrets or not launch.ranks:
        return {}
    try:
        return take_secrets(folder.secrets)
    except (OSError, ValueError):
        message = f"{folder.secrets}, with the job's secrets, cannot be read"
        return Failure(message=message, cause=Cause.STORAGE)


def read_launch(folder: AttemptFolder) -> Launch | Failure:
    """Read a launch; a damaged one is a failure, since the agent replaces the file as a whole."""
    try:
        return load_launch(folder.launch)
    except OSError as error:
        problem = error.strerror or str(error)
    except ValidationError as error:
        first = error.errors()[0]
        problem = ": ".join([*map(str, first["loc"]), first["msg"]])
    return Failure(message=f"{folder.launch} cannot be read: {problem}", cause=Cause.STORAGE)


def _pids(members: list[RankEntry]) -> list[int]:
    return [member.state.pid for member in members if member.state.pid is not None]
