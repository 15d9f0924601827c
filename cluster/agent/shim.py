"""The shim: supervises one attempt's ranks on one host, and outlives the agent.

    python -m trainhall.cluster.agent.shim FOLDER [--preload] [--attached] [--doorbell PATH]

`--preload` imports torch before the ranks are forked (the warm parent's shims have it already);
`--attached` stops the attempt when standard input closes; each change of `status.json` rings the
doorbell, a named pipe.

It is one thread around one `select`: children that end, commands that arrive, times that come.
"""

import argparse
import contextlib
import gc
import importlib
import math
import os
import select
import signal
import sys
import time
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from trainhall.cluster.agent import (
    claims,
    isolation,
    linux,
    outcome,
    places,
    processes,
    ranks,
)
from trainhall.cluster.agent.members import Member, Members, can_be_replaced, fallen_of
from trainhall.cluster.agent.places import Place
from trainhall.cluster.agent.watch import Watch
from trainhall.training.cause import Cause
from trainhall.training.control import STUCK_SECONDS, Control
from trainhall.training.link import (
    EXIT_STOPPED,
    AttemptFolder,
    Command,
    Failure,
    Fallen,
    Launch,
    Outcome,
    ShimStatus,
    replace_json,
)
from trainhall.training.progress import newest_step, read

AGREE_SECONDS = 1.0
"""How long the ranks of a task may take to agree on where to stop."""
TERMINATE_SECONDS = 0.4
"""Between SIGTERM and SIGKILL for a task: together with the above less than two seconds."""
PEERS_SECONDS = 1.0
"""The same for those that are left when one rank of a task has failed."""
LEAVE_SECONDS = 30.0
"""For ranks that a regrouping gives up, and so long their devices may not be free: they leave
behind a step that all agree on. It is longer for those whose steps are long."""
LEAVE_STEPS = 3
"""The same in longest steps so far."""
SILENT_SECONDS = 60.0
"""How long a script that is to pause may not ask whether to stop, before it gets SIGTERM. It is
longer for one whose steps are long."""
SILENT_STEPS = 5
"""The same in longest times between two asks so far."""
SAVING_SECONDS = 1800.0
"""How long a script that was told to pause may save: as long as its ranks wait for each other."""
SETTLE_SECONDS = 0.1
"""How long the end of a killed rank may be seen after those that it caused."""
SWEEP_SECONDS = 0.02
"""Between two looks for processes that are left; it rises while some cannot be ended."""
RETRY_SECONDS = 1.0
"""Before another try to write the status where there was no room for it."""
LOOK_SECONDS = 1.0
"""Between two looks for ranks that have ended, whatever becomes of the signal that tells it."""


@dataclass
class Shim:
    folder: AttemptFolder
    launch: Launch
    fork: bool
    """Built-in tasks run in forks of this process."""
    attached: bool = False
    doorbell: Path | None = None

    _failure: Failure | None = None
    _asked: Command = Command.RUN
    _signalled: bool = False
    _escalation: list[tuple[float, signal.Signals]] = field(default_factory=list)
    """What the ranks that are left get, and when (monotonic), earliest first."""
    _pausing_since: float | None = None
    """When (monotonic) a script that agrees on where to stop was asked to."""
    _place: Place | None = None
    """Where the ranks meet; None: they have not been started."""
    _left: Place | None = None
    """Where they met on this host, before another one led."""
    _started: bool = False
    _unwritten: ShimStatus | None = None
    _isolated: bool = False
    _fallen: list[Fallen] = field(default_factory=list)
    _regroup_by: float = math.inf
    """When (monotonic) the ranks that are left need no longer wait for those that have fallen, or
    those that are to leave have had their time."""

    def __post_init__(self) -> None:
        self._is_script = self.launch.spec.script is not None
        start = partial(ranks.start, self.folder, fork=self.fork)
        self._members = Members(self.launch, start)
        self._began = processes.started_at(os.getpid())
        self._memory_kills = outcome.out_of_memory_kills()
        self._isolation = isolation.watch(self.folder, self.launch)
        self._hangs = Watch(self.folder, self.launch)

    def run(self) -> None:
        """Supervise until no process of the attempt is left on this host."""
        linux.adopt_orphans()
        self._wakeup = processes.wake_on_signals()
        self._control = Control(self.folder.control, create=True)
        self._commands = claims.make_pipe(claims.command_path(self.folder))
        self._publish("starting")
        self._heed_isolation()
        self._begin()
        while not self._is_over():
            self._wait()
            self._reap()
            self._look_for_hangs()
            self._await_regrouping()
            self._heed_isolation()
            self._escalate()
        self._end_everything()
        ended, failure = outcome.outcome_of(self._members.states, self._work(), self._failure)
        claims.command_path(self.folder).unlink(missing_ok=True)
        self._publish("exited", ended, failure)
        while self._unwritten is not None and self.folder.path.exists():
            time.sleep(RETRY_SECONDS)
            self._write_status()

    # -- what happens ---------------------------------------------------------------------------

    def _wait(self) -> None:
        """Until a child ends, a command comes, or a time has come."""
        timeout = RETRY_SECONDS if self._unwritten is not None else None
        times = [at for at, _ in self._escalation[:1]]
        if self._pausing_since is not None:
            times.append(self._patience_ends(self._pausing_since))
        if self._watches and self._hangs.due < math.inf:
            times.append(self._hangs.due)
        if self._members.alive():
            times.append(time.monotonic() + LOOK_SECONDS)
        if self._regroup_by < math.inf:
            times.append(self._regroup_by)
        if self._isolation is not None:
            times.append(time.monotonic() + isolation.CHECK_SECONDS)
        if times:
            until = max(0.0, min(times) - time.monotonic())
            timeout = until if timeout is None else min(timeout, until)
        sources = [self._wakeup, self._commands]
        if self.attached:
            sources.append(0)
        ready, _, _ = select.select(sources, [], [], timeout)
        for fd in ready:
            if fd == self._wakeup:
                if set(claims.drain(fd)) & {signal.SIGTERM, signal.SIGINT}:
                    self._obey(Command.STOP)
            elif fd == self._commands:
                self._take_commands(claims.drain(fd))
            elif not os.read(0, 4096):
                self.attached = False
                self._obey(Command.STOP)
        self._write_status()

    def _take_commands(self, data: bytes) -> None:
        for byte in data:
            if byte == claims.LAUNCH:
                self._take_launch()
            elif chr(byte) in ("1", "2"):
                self._obey(Command(int(chr(byte))))

    def _obey(self, command: Command) -> None:
        if command <= self._asked:
            return
        self._asked = command
        self._control.tell(command)
        if not self._started:
            # Nothing has been trained yet; there is nothing to save.
            self._signalled = True
        elif self._is_script and command is Command.PAUSE and self._agrees():
            # Its ranks agree on a step, as those of a task do, unless they ask no more.
            self._pausing_since = time.monotonic()
        elif self._is_script:
            self._signalled = True
            self._terminate(0.0, self.launch.spec.recovery.grace_seconds)
        elif command is Command.STOP:
            self._terminate(AGREE_SECONDS, TERMINATE_SECONDS)
        self._publish(self._phase())

    def _agrees(self) -> bool:
        """The script asks after every step whether to stop."""
        return Control.is_listened(self.folder.control)

    def _reap(self) -> None:
        ended = self._collect()
        if self._failure is None:
            states = [member.state for member in ended]
            culprit = outcome.first_failing(states, self._work())
            if culprit is not None and culprit.signal is None and self._members.alive():
                # A process that a signal ends closes its connections before it can be waited for,
                # so that a peer which they broke may be seen to end first.
                time.sleep(SETTLE_SECONDS)
                later = self._collect()
                ended += later
                killed = [m.state for m in later if m.state.signal is not None]
                culprit = outcome.first_failing(killed, self._work()) or culprit
            if culprit is not None:
                first = next(member for member in ended if member.state is culprit)
                self._take_failures([first, *(m for m in ended if m is not first)])
        if ended:
            self._send_off_late_ones()
            self._publish(self._phase())

    def _send_off_late_ones(self) -> None:
        """Of ranks that came for a generation before which the job was completed. Those that
        completed it together do not look for commands any more."""
        if self.launch.in_place and self._members.have_completed:
            self._control.tell(Command.STOP)

    def _take_failures(self, ended: list[Member]) -> None:
        """Ranks have ended, the first to blame before the others."""
        listed = self._members.listed
        for member in ended:
            if self._failure is not None or not outcome.failed(member.state, self._work()):
                continue
            failure = self._hangs.told_of(member.state.pid) or outcome.describe_failure(
                self.folder, member.state, out_of_memory=self._memory_ran_out()
            )
            replaced = self._asked is Command.RUN and can_be_replaced(
                self.launch, member.state, failure, alone=not any(m.is_alive for m in listed)
            )
            if not replaced:
                self._fail(self._fallen[0].failure if self._fallen else failure)
                continue
            failure.step = newest_step(self.folder.path)
            self._fallen.append(fallen_of(self.launch, member, failure))
            patience = self.launch.spec.recovery.regroup_seconds + PEERS_SECONDS
            self._regroup_by = min(self._regroup_by, time.monotonic() + patience)

    # -- regrouping -----------------------------------------------------------------------------

    def _await_regrouping(self) -> None:
        """See that what has fallen is replaced in time, and that what is to leave does."""
        late = time.monotonic() >= self._regroup_by
        if late:
            self._regroup_by = math.inf
            processes.send_groups(_pids(self._members.leaving), signal.SIGKILL)
        if not self._fallen or self._failure is not None:
            return
        alone = self.launch.num_nodes == 1 and not self._members.alive()
        if late or alone or self._asked is not Command.RUN:
            self._fail(self._fallen[0].failure)
            self._publish(self._phase())

    def _take_launch(self) -> None:
        """Go on with the launch in the folder, if it is of a later generation."""
        launch = Launch.model_validate_json(self.folder.launch.read_bytes())
        is_newer = launch.in_place and launch.generation > self.launch.generation
        is_over = self._failure is not None or self._members.have_completed
        if not is_newer or is_over or self._asked is Command.STOP:
            return
        assert self._place is not None  # or nothing would be left to wait for
        place: Place | Failure = self._place
        if not self._place.serves(launch):
            place = places.find(self.folder, launch, fork=self.fork)
        if isinstance(place, Failure):
            self._fail(place)
            self._publish(self._phase())
            return
        try:
            self._write_group(launch, place)
        except OSError:
            # A full disk. The ranks go on as they are, and the agent tells the launch again.
            if place is not self._place:
                place.close()
            return
        self.launch = launch
        self._fallen = []
        self._hangs.begin_anew(time.monotonic() + STUCK_SECONDS)
        self._members.regroup(launch)
        self._regroup_by = math.inf
        if self._members.leaving:
            pids = _pids(self._members.leaving)
            told = [page for pid in pids if (page := read(self.folder.path, pid)) is not None]
            longest = max((max(p.longest_seconds, p.first_seconds) for p in told), default=0.0)
            self._regroup_by = time.monotonic() + max(LEAVE_SECONDS, LEAVE_STEPS * longest)
        if place is not self._place:
            self._leave(self._place, for_own=place.store_pid is not None)
        self._meet_at(place)

    def _leave(self, place: Place, *, for_own: bool) -> None:
        """Go on from a place. Its store is closed once ranks meet on this host again: until then
        some may be about to leave it."""
        if not for_own:
            self._left = place if place.store_pid is not None else self._left
            return
        for each in (place, self._left):
            if each is not None:
                each.close()
        self._left = None

    # -- hangs ----------------------------------------------------------------------------------

    @property
    def _watches(self) -> bool:
        """Ranks that fail or were told to end have their times already."""
        runs = self._started and self._failure is None and not self._fallen
        return runs and self._asked is not Command.STOP

    def _look_for_hangs(self) -> None:
        now, told = time.monotonic(), self._hangs.stall
        if self._watches and now >= self._hangs.due:
            failure = self._hangs.look(now, self._live(), self.launch)
            if failure is not None:
                self._fail(failure)
        if (told is None) != (self._hangs.stall is None):
            self._publish(self._phase())

    def _live(self) -> dict[int, int]:
        """The live ranks of the present generation, each with its process."""
        alive = [member.state for member in self._members.listed if member.is_alive]
        return {state.rank: state.pid for state in alive if state.pid is not None}

    def _heed_isolation(self) -> None:
        """Under `on_isolation: stop`, end the ranks before the job is started elsewhere."""
        if self._isolation is None:
            return
        silent = self._is_script and not self._agrees()
        step = self._isolation.look(self.launch.spec.recovery.grace_seconds if silent else math.inf)
        if step is isolation.Step.GO_ON:
            return
        self._isolated = self._isolated or self._asked is Command.RUN
        self._obey(Command.PAUSE)
        if step is isolation.Step.KILL:
            self._obey(Command.STOP)
            self._terminate(0.0, 0.0)

    def _collect(self) -> list[Member]:
        """Those that have ended since the last call and were not told to leave."""
        ended: list[Member] = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return ended
            if pid == 0:
                return ended
            code = os.waitstatus_to_exitcode(status)
            if self._place is not None and pid == self._place.store_pid:
                self._store_ended(code)
            elif (member := self._members.ended(pid, code)) is not None:
                if not any(member is listed for listed in self._members.listed):
                    self._publish(self._phase())
                elif self._has_left(member):
                    self._members.renew(member)
                    self._publish(self._phase())
                else:
                    ended.append(member)

    def _has_left(self, member: Member) -> bool:
        """It was told so by an earlier launch. The present one lists its device again."""
        is_over = self._failure is not None or self._members.have_completed
        is_going_on = not is_over and self._asked is not Command.STOP
        return self.launch.in_place and is_going_on and member.state.exit_code == EXIT_STOPPED

    def _fail(self, failure: Failure) -> None:
        """End the other ranks too: they wait in collectives for one that will not come."""
        failure.step = newest_step(self.folder.path)
        self._failure = failure
        grace = self.launch.spec.recovery.grace_seconds if self._is_script else PEERS_SECONDS
        self._terminate(0.0, grace)

    def _terminate(self, wait: float, grace: float) -> None:
        now = time.monotonic()
        plan = [(now + wait, signal.SIGTERM), (now + wait + grace, signal.SIGKILL)]
        # A second reason to end never puts off what the first one brings.
        if self._escalation and self._escalation[-1][0] <= plan[-1][0]:
            return
        self._escalation = plan

    def _patience_ends(self, since: float) -> float:
        """When a script that is to pause since a time gets SIGTERM after all."""
        asked_at, longest = self._control.listened
        patience = max(SILENT_SECONDS, SILENT_STEPS * longest)
        return max(since, asked_at) + (SAVING_SECONDS if self._control.is_answered else patience)

    def _escalate(self) -> None:
        since = self._pausing_since
        if since is not None and time.monotonic() >= self._patience_ends(since):
            self._pausing_since = None
            self._terminate(0.0, self.launch.spec.recovery.grace_seconds)
        while self._escalation and self._escalation[0][0] <= time.monotonic():
            _, number = self._escalation.pop(0)
            alive = _pids(self._members.alive())
            if alive and self._failure is None:
                self._signalled = True
            # Each rank leads a group; SIGTERM reaches what it started there, as under `torchrun`.
            processes.send_groups(alive, number)

    # -- the rendezvous and the ranks -----------------------------------------------------------

    def _begin(self) -> None:
        place = places.find(self.folder, self.launch, fork=self.fork)
        if isinstance(place, Failure):
            self._failure = place
        elif self._failure is None and not self._signalled:
            self._write_group(self.launch, place)
            self._meet_at(place)

    def _write_group(self, launch: Launch, place: Place) -> None:
        """What the ranks of a launch look for once they are told of it."""
        for listed in launch.ranks:
            self.folder.rank(listed.rank).mkdir(parents=True, exist_ok=True)
        if launch.in_place:
            told = launch.model_copy(update={"rendezvous": place.rendezvous})
            replace_json(self.folder.group(launch.generation), told)

    def _store_ended(self, code: int) -> None:
        assert self._place is not None
        self._place = replace(self._place, store_pid=None)
        if self._failure is None and not self._signalled:
            self._fail(
                Failure(
                    exit_code=max(code, 0),
                    message="the rendezvous store ended; the ranks can't find each other",
                    cause=Cause.KILLED,
                    log_tail=outcome.last_lines(claims.log_path(self.folder)),
                )
            )

    def _meet_at(self, place: Place) -> None:
        self._place = place
        if self._failure is not None or self._signalled:
            return
        if self.launch.in_place:
            self._control.regroup(self.launch.generation)
        self._members.start(place.rendezvous)
        self._started = True
        self._publish("running")

    # -- the end --------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        if not self._started:
            return self._failure is not None or self._signalled
        waits = bool(self._fallen) and self._failure is None
        return not waits and not self._members.alive()

    def _end_everything(self) -> None:
        """Leave no process of the attempt, however it was detached."""
        pause = SWEEP_SECONDS
        while True:
            left = processes.descendants() | processes.marked(self.folder.path)
            processes.send(left, signal.SIGKILL)
            self._reap_silently()
            if not left:
                return
            select.select([self._wakeup], [], [], pause)
            claims.drain(self._wakeup)
            pause = min(pause * 1.2, 1.0)

    def _reap_silently(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    # -- telling --------------------------------------------------------------------------------

    def _phase(self) -> str:
        if self._asked is not Command.RUN or self._failure is not None:
            return "stopping"
        return "running" if self._started else "starting"

    def _work(self) -> outcome.Work:
        return outcome.Work(self._is_script, self._asked, self._signalled)

    def _memory_ran_out(self) -> bool:
        return outcome.out_of_memory_kills() > self._memory_kills

    def _publish(
        self, phase: str, ended: Outcome | None = None, failure: Failure | None = None
    ) -> None:
        self._unwritten = ShimStatus.model_validate(
            {
                "job_id": self.launch.job_id,
                "attempt": self.launch.attempt,
                "generation": self.launch.generation,
                "shim_pid": os.getpid(),
                "shim_started_at": self._began,
                "phase": phase,
                "command": self._asked,
                "ranks": [rank.model_dump() for rank in self._members.states],
                "fallen": [fallen.model_dump() for fallen in self._fallen],
                "leaving": [member.place.device_index for member in self._members.leaving],
                "rendezvous": self._place.rendezvous if self._place is not None else None,
                "outcome": ended,
                "failure": failure or self._failure,
                "isolated": self._isolated,
                "stall": self._hangs.stall,
                "updated_at": time.time(),
            }
        )
        self._write_status()

    def _write_status(self) -> None:
        """A full disk must not end the ranks: what could not be written is tried again."""
        if self._unwritten is not None:
            with contextlib.suppress(OSError):
                replace_json(self.folder.status, self._unwritten)
                self._unwritten = None
                claims.ring(self.doorbell)


def _pids(members: list[Member]) -> list[int]:
    return [member.state.pid for member in members if member.state.pid is not None]


def supervise(
    folder: str, *, fork: bool, attached: bool = False, doorbell: str | None = None
) -> int:
    """Run the attempt of a folder in this process, unless it was run before; the exit code."""
    attempt = AttemptFolder(Path(folder))
    try:
        lock = claims.claim(attempt)
    except (claims.AlreadyClaimed, FileNotFoundError):
        return 0
    launch = Launch.model_validate_json(attempt.launch.read_bytes())
    linux.set_name(f"shim {launch.job_id}")
    Shim(attempt, launch, fork, attached, Path(doorbell) if doorbell else None).run()
    os.close(lock)
    return 0


def main_forked(folder: str, doorbell: str) -> int:
    """Entry point of a child of the warm parent, which has torch imported and prints nowhere."""
    log = os.open(
        claims.log_path(AttemptFolder(Path(folder))), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
    )
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    return supervise(folder, fork=True, doorbell=doorbell)


def main_bound(folder: str, parent: str) -> int:
    """As `main_forked`, but ends at once, with its ranks, when the warm parent `parent` does."""
    linux.die_with_parent(int(parent))
    return main_forked(folder, os.devnull)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m trainhall.cluster.agent.shim")
    parser.add_argument("folder")
    parser.add_argument("--preload", action="store_true")
    parser.add_argument("--attached", action="store_true")
    parser.add_argument("--doorbell")
    options = parser.parse_args()
    # It served its purpose in this process's own memory and is nothing that a rank should see.
    os.environ.pop(linux.ROOM_VARIABLE, None)
    if options.preload:
        # As the warm parent does: looking for garbage takes a sixth of the time of these imports.
        gc.disable()
        for name in ranks.PRELOADED:
            importlib.import_module(name)
        gc.collect()
        gc.freeze()
        gc.enable()
    return supervise(
        options.folder,
        # Forking a process that has Apple's frameworks loaded is not safe.
        fork=options.preload and linux.IS_LINUX,
        attached=options.attached,
        doorbell=options.doorbell,
    )


if __name__ == "__main__":
    sys.exit(main())
