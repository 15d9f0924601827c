"""This process's place in the world: a rank of an attempt, or any process outside Trainhall.

Only one process of a rank speaks for it. What a script starts inherits its environment (data
workers, a `torchrun` within a job), and acts as if it ran outside.
"""

import atexit
import contextlib
import fcntl
import importlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from trainhall.training.checkpoint.format.names import parse_name, scan
from trainhall.training.fencing import FencingToken
from trainhall.training.link.control import Control
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.launch import Command, Launch
from trainhall.training.link.profiling.messages import ProfileReport
from trainhall.training.link.progress import Activity
from trainhall.training.link.progress_writer import Progress
from trainhall.training.link.spool import EventSpool, MetricSpool, newest_event, newest_frame
from trainhall.training.link.status import EXIT_PAUSED, EXIT_STOPPED
from trainhall.training.sdk.reporting import Reporter, Spooled, Terminal, checked_step

Resized = Callable[[int, int], None]
_LOCK = "sdk.lock"
_TORCH_PART = "trainhall.training.sdk.together"
_PROFILES = "trainhall.training.profiling.step_profiles"


@dataclass(frozen=True)
class Context:
    """This process's place among the ranks of its job."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    job_id: str | None = None
    """None outside Trainhall."""
    attempt: int = 1

    @cached_property
    def device(self) -> Any:
        """This rank's `torch.device`: its GPU if it has one, else the CPU. Imports torch."""
        return importlib.import_module(_TORCH_PART).choose_device(self.local_rank)


class Session:
    """Everything that one process has of Trainhall.

    Args:
        folder: the attempt's, if this process speaks for one of its ranks.
        helps: the rank whose environment this process has is another process, which started it.
    """

    def __init__(
        self, environ: Mapping[str, str], folder: AttemptFolder | None, *, helps: bool = False
    ) -> None:
        self._pid = os.getpid()
        self._helps = helps
        self._launch = None if folder is None else _launch(folder)
        self.context = _context(environ, self._launch)
        self._saves_to: Path | None = None
        self._control: Control | None = None
        self._progress: Progress | None = None
        self._events: EventSpool | None = None
        self._folder = folder
        self._profiles: Any = None
        self._refused_profile = 0
        """Request for a profile that cannot be made here."""
        rank = self.context.rank
        if folder is None:
            self.reporter = Reporter(Terminal(rank))
        else:
            self._control = Control(folder.control)
            self._progress = Progress(folder.path)
            events, metrics = folder.events(rank), folder.metrics(rank)
            self._events = EventSpool(events, rank, after=newest_event(events))
            # After what an earlier process of the rank has written.
            spool = MetricSpool(metrics, after=newest_frame(metrics))
            self.reporter = Reporter(Spooled(spool, rank))
        self._start: dict[str, Any] = {"total_steps": None}
        """The report of this attempt's start; without `checkpoint.load()` its step is unknown."""
        self._reported_start: dict[str, Any] | None = None
        self._begun_at = 0.0
        self._first_step: int | None = None
        self._asks_to_stop = False
        """The script asks after every step whether to stop."""
        self._command = Command.RUN
        """The decision that all ranks have agreed on."""
        self._resized: list[Resized] = []
        self._sizes: tuple[int, int] | None = None
        self.loaded_step = 0

    @property
    def is_mine(self) -> bool:
        """Return whether the session was made in this process, not in one that forked it."""
        return os.getpid() == self._pid

    def check_mine(self) -> None:
        """Check that this process may act for the rank.

        Raises:
            RuntimeError: the script started it, and it must not take the script's place.
        """
        if not self.is_mine or self._helps:
            raise RuntimeError(
                "a process that the script started, such as a data worker, cannot act for the "
                "rank: call trainhall.should_stop, leave and checkpoint in the script's own process"
            )

    def set_up(self, total_steps: int | None, saves_to: Path | None) -> None:
        """Note the script's own settings; `saves_to` is for checkpoints outside Trainhall."""
        self._start["total_steps"] = total_steps
        self._saves_to = saves_to

    def join(self) -> None:
        """Join the process group of several ranks, where torch is installed."""
        if self._helps:
            return  # its place is taken, and the others would wait without end
        if self.context.world_size > 1 and find_spec("torch") is not None:
            master = os.environ.get("MASTER_ADDR", "127.0.0.1")
            importlib.import_module(_TORCH_PART).join(self.context.device, master)

    def report(self, values: Mapping[str, Any], step: int | None) -> None:
        if self.is_mine:
            self._begin()
            self.reporter.report(values, step)
            if self._first_step is None and self.reporter.step > self.loaded_step:
                self._report_first_step()

    def should_stop(self) -> bool:
        if not self._asks_to_stop:
            self._begin()
            self._asks_to_stop = True
            self._append_event("asks", {})
            if self._progress is not None:
                self._progress.begin(self.reporter.step)
        elif self._progress is not None:
            self._progress.step(self.reporter.step)
        if self._control is None:
            return False  # outside Trainhall nothing can ask this process to stop
        self._control.listen()
        self._command = self._control.command
        if self._launch is not None and self._launch.pauses_at(self.reporter.step):
            self._command = max(self._command, Command.PAUSE)
        profiles = self._open_profiles(self._control.profile)
        profile = profiles.known if profiles is not None else 0
        if self._agreement is not None:
            self._command, profile = self._agreement.reach(self._command, profile)
        if profiles is not None:
            self._profile_step(profile)
        stop = self._command is not Command.RUN
        if stop:
            self._control.answer()
        return stop

    def leave(self, own: str | None) -> NoReturn:
        """End this rank as all ranks agreed to: paused if a checkpoint is there, else stopped.

        If no stop was requested, the script completes.

        Args:
            own: name of a checkpoint of the script's own.
        """
        if self._progress is not None:
            self._progress.set_activity(Activity.ENDING)
        self._finish_profiles()
        saved = None
        if "checkpoints" in self.__dict__:
            self.checkpoints.finish()
            saved = self.checkpoints.saved_step
        code = EXIT_STOPPED
        if self._command is Command.RUN:
            code = 0
        elif self._command is Command.PAUSE and saved is not None:
            code = EXIT_PAUSED
            self._append_event("paused", {"step": saved})
        elif self._command is Command.PAUSE and own is not None:
            message = f"the script saved {own}, from which it resumes by itself"
            self._append_event("note", {"message": message})
        elif self._command is Command.PAUSE:
            self._append_event("note", {"message": self._unsaved_pause()})
        raise SystemExit(code)

    def _unsaved_pause(self) -> str:
        start = f"step {self.loaded_step}" if self.loaded_step else "its beginning"
        return (
            "the script paused without saving by trainhall.checkpoint.save(): when resumed, it "
            f"starts again from {start}"
        )

    # -- profiles -------------------------------------------------------------------------------

    def _open_profiles(self, asked: int) -> Any:
        """Return the profiles of this rank; None until the first is asked for.

        Args:
            asked: number of the newest request.
        """
        if self._profiles is not None or asked == self._refused_profile:
            return self._profiles
        assert self._folder is not None
        assert self._events is not None
        if find_spec("torch") is None:
            self._refused_profile = asked
            why = "torch is not installed in the script's environment"
            report = ProfileReport(
                number=asked, rank=self.context.rank, state="failed", message=why
            )
            self._events.append("profile", report.model_dump(mode="json"))
            return None
        profiles = importlib.import_module(_PROFILES).StepProfiles
        self._profiles = profiles(self._folder, self._control, self._events.append)
        return self._profiles

    def _profile_step(self, agreed: int) -> None:
        """Note the end of a step, and begin to profile the next one if that was agreed on."""
        self._profiles.step_ended()
        self._profiles.agree(agreed)
        if self._profiles.is_active:
            self._profiles.step_begins(self.reporter.step + 1, self._launch, self.context.rank)

    def _finish_profiles(self) -> None:
        if self._profiles is not None:
            self._profiles.finish("the script ended")

    # -- checkpoints ----------------------------------------------------------------------------

    @cached_property
    def checkpoints(self) -> Any:
        """The store of the script's states. Making it is a collective.

        Raises:
            NoCheckpointsError: outside Trainhall no folder was given.
        """
        launch = self._launch
        if launch is not None:
            folder = Path(launch.checkpoint.folder)
            token = launch.token
            resume, lacking = launch.checkpoint.resume, launch.checkpoint.lacking
            shared = launch.num_nodes > 1 and not launch.checkpoint.upload
        elif self._saves_to is not None:
            folder = self._saves_to.absolute()
            resume = [found.path.name for found in scan(folder)] if folder.is_dir() else []
            attempts = [name.attempt for name in map(parse_name, resume) if name is not None]
            token = FencingToken("script", max(attempts, default=0) + 1, 1)
            shared, lacking = False, {}
        else:
            raise NoCheckpointsError
        group = self._group()
        torch_part = importlib.import_module("trainhall.training.sdk.checkpoints")
        return torch_part.Checkpoints(
            folder,
            token,
            resume,
            lacking,
            group,
            shared_by_hosts=shared,
            committed=lambda done: self._append_event("checkpoint", done.event()),
            not_saved=lambda step, message: self._append_event(
                "not_saved", {"step": step, "message": message}
            ),
        )

    def save(self, state: dict[str, Any], step: int | None) -> None:
        self._begin()
        at = self.reporter.step if step is None else checked_step(step)
        # The next attempt may start behind this step, and would not measure it again. A full disk
        # is for the checkpoint to report.
        with contextlib.suppress(OSError):
            self.reporter.flush()
        # The other ranks write nothing, and need not wait for their GPUs.
        metrics = self.reporter.finite() if self.context.rank == 0 else {}
        with self._progress.during(Activity.SAVING) if self._progress else contextlib.nullcontext():
            self.checkpoints.save(state, at, metrics)

    def load(self) -> dict[str, Any] | None:
        found = self.checkpoints.load()
        self._start["resumed_from"] = None if found is None else found[1].step
        if found is None:
            self._begin()
            return None
        state, loaded = found
        self.loaded_step = self.reporter.step = loaded.step
        self.reporter.last |= loaded.manifest.metrics
        if loaded.notes:
            self._start["note"] = "; ".join(map(str, loaded.notes))
            self._start["passed_over"] = [asdict(each) for each in loaded.notes]
        self._begin()
        before, now = loaded.manifest.world_size, self.context.world_size
        if before != now:
            self._sizes = before, now
            for callback in self._resized:
                callback(before, now)
        return dict(state)

    def resume_own(self, step: int) -> None:
        """Note that the script resumes after a step from a checkpoint of its own; 0: from none."""
        if self.is_mine:
            self._start["resumed_from"] = step or None
            self.loaded_step = self.reporter.step = step
            self._begin()

    def on_resize(self, callback: Resized) -> None:
        self._resized.append(callback)
        if self._sizes is not None:
            callback(*self._sizes)

    # -- reporting ------------------------------------------------------------------------------

    def close(self) -> None:
        """Write what waits; called at the end of the process."""
        if not self.is_mine:
            return
        # A profiler that still records would crash the end of the interpreter.
        self._finish_profiles()
        with contextlib.suppress(Exception):  # as in the thread that writes
            self.reporter.flush()
        if "torch.distributed" in sys.modules:
            # What the script registered to run at its end still runs, and its exit code stands.
            importlib.import_module(_TORCH_PART).end_with_groups()

    def failed(self, error: BaseException, trace: TracebackType | None) -> None:
        """Note that an exception ends the process."""
        if self._events is not None and self.is_mine:
            text = "".join(traceback.format_exception(type(error), error, trace))
            data = {"type": type(error).__name__, "message": str(error), "traceback": text}
            with contextlib.suppress(OSError):
                self._events.append("failure", data)

    def _begin(self) -> None:
        """Report where this attempt starts, before anything else; again if more is known."""
        if self._reported_start != self._start:
            self._reported_start, self._begun_at = dict(self._start), time.time()
            self._append_event("started", self._reported_start)

    def _report_first_step(self) -> None:
        """Report this attempt's first step: an incident may end with that."""
        self._first_step = self.reporter.step
        generation = self._launch.generation if self._launch is not None else 1
        data = {"generation": generation, "step": self._first_step, "loaded": self._begun_at}
        self._append_event("stepped", data)

    def _append_event(self, kind: str, data: dict[str, Any]) -> None:
        """Append an event of the whole job, as rank 0."""
        if self._events is not None and self.context.rank == 0:
            self._events.append(kind, data)

    @cached_property
    def _agreement(self) -> Any:
        """The way in which all ranks agree to stop; None: there is one rank. A collective."""
        group, launch = self._group(), self._launch
        if group is None:
            return None
        pauses = launch is not None and bool(launch.spec.training.pause_at)
        return importlib.import_module(_TORCH_PART).Agreement(group, every_step=pauses)

    def _group(self) -> Any:
        if self.context.world_size == 1:
            return None
        return importlib.import_module(_TORCH_PART).host_group(self.context.world_size)


class NoCheckpointsError(RuntimeError):
    """Outside Trainhall there is no place for checkpoints unless one is given."""


def open_session() -> Session:
    """Open this process's session; it ends with the process."""
    folder, helps = _own_folder(os.environ)
    session = Session(os.environ, folder, helps=helps)
    atexit.register(session.close)
    hook = sys.excepthook

    def report(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        session.failed(error, trace)
        hook(kind, error, trace)

    sys.excepthook = report
    return session


def _own_folder(environ: Mapping[str, str]) -> tuple[AttemptFolder | None, bool]:
    """Return the folder of the attempt of whose rank this process is the first to speak, else None;
    and whether it has the place among several ranks that another process took before."""
    path, writer, rank = (
        environ.get(name, "") for name in ("TRAINHALL_ATTEMPT_FOLDER", "TRAINHALL_WRITER", "RANK")
    )
    if not path or not rank or not writer.startswith(f"{rank}-"):
        return None, False
    folder = AttemptFolder(Path(path))
    try:
        launch = _launch(folder)
        if launch.spec.script is None:
            return None, False  # a task's own loop speaks for it
        if environ.get("WORLD_SIZE") != str(launch.world_size):
            return None, False  # a group of its own within the rank, such as a nested torchrun
        fd = os.open(folder.rank(int(rank)) / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # A `torchrun` within the rank has ranks too, but joins elsewhere.
        meeting = f"{environ.get('MASTER_ADDR')} {environ.get('MASTER_PORT')}".encode()
        try:
            # Held until this process ends; a fork shares it, a program that it executes does not.
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            taken = os.pread(fd, len(meeting) + 1, 0)
            os.close(fd)
            return None, launch.world_size > 1 and taken == meeting
        os.ftruncate(fd, 0)
        os.pwrite(fd, meeting, 0)
    except OSError:
        return None, False
    return folder, False


def _launch(folder: AttemptFolder) -> Launch:
    return Launch.model_validate_json(folder.launch.read_bytes())


def _context(environ: Mapping[str, str], launch: Launch | None) -> Context:
    def number(name: str, default: int) -> int:
        text = environ.get(name, "")
        return int(text) if text.isdigit() else default

    world_size = number("WORLD_SIZE", 1)
    return Context(
        rank=number("RANK", 0),
        world_size=world_size,
        local_rank=number("LOCAL_RANK", 0),
        local_world_size=number("LOCAL_WORLD_SIZE", world_size),
        job_id=None if launch is None else launch.job_id,
        attempt=1 if launch is None else launch.attempt,
    )
