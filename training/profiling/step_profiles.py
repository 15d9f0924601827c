"""Profiles of the next steps of a rank, when users ask for them.

Between two profiles a step costs a look at two attributes. Nothing that goes wrong here ends the
training: it is reported as the end of the profile.
"""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from trainhall.training.link.control import Control
from trainhall.training.link.folder import AttemptFolder, working_folder
from trainhall.training.link.launch import Launch
from trainhall.training.link.profiling.messages import (
    MAX_MESSAGE,
    ProfileReport,
    ProfileRequest,
    trace_name,
)
from trainhall.training.link.regular_file import read_regular
from trainhall.training.profiling.recording import Export, Recording, TraceError

MAX_GROWTH_BYTES = 2 * 2**30
"""Growth of this process's memory at which a profile ends early: a recording is kept in memory."""
EXPORT_SECONDS = 60.0
"""Longest time that the end of a rank waits until its trace is written."""
_MAX_REQUEST_BYTES = 2**20


class StepProfiles:
    """The profiles of one rank, one after the other.

    Args:
        append: appends an event of this rank.
    """

    def __init__(
        self, folder: AttemptFolder, control: Control, append: Callable[[str, dict[str, Any]], None]
    ) -> None:
        self._folder, self._control, self._append = folder, control, append
        self._taken = 0
        """The newest request that was begun here."""
        self._begin: int | None = None
        """A request that begins with the next step."""
        self._running: _Running | None = None
        self._writer: threading.Thread | None = None

    @property
    def known(self) -> int:
        """The request that this rank has, and has not begun; 0: there is none."""
        number = self._control.profile
        return number if number > self._taken else 0

    def agree(self, number: int) -> None:
        """Begin the request, which all ranks have, with the next step; 0: there is none."""
        if number > self._taken:
            self._taken = self._begin = number

    @property
    def is_active(self) -> bool:
        """Return whether the next step is, or may be, profiled."""
        return self._begin is not None or self._running is not None

    def step_begins(self, step: int, launch: Launch, rank: int) -> None:
        """Begin to record with this step, if that was agreed on."""
        number, self._begin = self._begin, None
        if number is None:
            return
        try:
            data = read_regular(self._folder.profile(number), _MAX_REQUEST_BYTES)
            request = ProfileRequest.model_validate_json(data)
        except (OSError, ValueError) as error:
            self._report(number, rank, "failed", f"the request cannot be read: {error}")
            return
        if rank not in request.ranks:
            return
        if self._writer is not None and self._writer.is_alive():
            self._report(number, rank, "failed", "the trace before it is still being written")
            return
        try:
            recording = Recording(stacks=request.stacks, memory=request.memory)
        except Exception as error:
            # Whatever the profiler does not bear is no reason to stop training.
            self._report(number, rank, "failed", f"the profiler did not start: {error}")
            return
        name = trace_name(launch.spec.outputs.path, number, rank)
        target = working_folder(self._folder, launch) / name
        scratch = self._folder.rank(rank)
        self._running = _Running(request, rank, recording, step, target, scratch, _resident_bytes())
        if rank == min(request.ranks):
            self._report(number, rank, "started", first_step=step)

    def step_ended(self) -> None:
        """Note that a step has ended; ends the profile if it was its last one."""
        running = self._running
        if running is None:
            return
        running.steps += 1
        if running.steps >= running.request.steps:
            self._end(None)
        elif _resident_bytes() - running.resident_bytes > MAX_GROWTH_BYTES:
            self._end(f"the recording took more than {MAX_GROWTH_BYTES >> 30} GiB of memory")

    def finish(self, why: str) -> None:
        """End what is recorded, and wait until it is written: this rank is about to end.

        Args:
            why: a clause, such as "the job paused".
        """
        if self._running is not None and self._running.steps > 0:
            self._end(why)
        self.discard(why)
        if self._writer is not None:
            self._writer.join(EXPORT_SECONDS)

    def discard(self, why: str) -> None:
        """End what is recorded without keeping it."""
        running, self._running = self._running, None
        self._begin = None
        if running is None:
            return
        message = f"it was discarded: {why}"
        try:
            running.recording.stop()
        except Exception as error:
            message = f"{message}; the profiler did not stop: {error}"
        self._report(running.request.number, running.rank, "failed", message)

    def _end(self, why: str | None) -> None:
        """End the recording and begin to write it.

        Args:
            why: it ends early, as a clause.
        """
        running, self._running = self._running, None
        assert running is not None
        steps = f"{running.steps} of {running.request.steps} steps"
        began = time.monotonic()
        try:
            running.recording.stop()
            export = running.recording.export(running.target, running.scratch)
        except Exception as error:
            message = f"it could not be ended: {error}"
            self._report(running.request.number, running.rank, "failed", message)
            return
        report = ProfileReport(
            number=running.request.number,
            rank=running.rank,
            state="saved",
            first_step=running.first_step,
            last_step=running.first_step + running.steps - 1,
            stall_seconds=time.monotonic() - began,
            message=f"it ended after {steps}: {why}" if why is not None else "",
        )
        self._writer = threading.Thread(
            target=self._wait_for, args=(export, report), name="profile", daemon=True
        )
        self._writer.start()

    def _wait_for(self, export: Export, report: ProfileReport) -> None:
        try:
            export.wait()
        except TraceError as error:
            report = report.model_copy(update={"state": "failed", "message": str(error)})
        self._append("profile", report.model_dump(mode="json"))

    def _report(
        self,
        number: int,
        rank: int,
        state: Literal["started", "failed"],
        message: str = "",
        first_step: int | None = None,
    ) -> None:
        report = ProfileReport(
            number=number,
            rank=rank,
            state=state,
            first_step=first_step,
            message=message[:MAX_MESSAGE],
        )
        self._append("profile", report.model_dump(mode="json"))


class _Running:
    """A profile that is being recorded."""

    def __init__(
        self,
        request: ProfileRequest,
        rank: int,
        recording: Recording,
        first_step: int,
        target: Path,
        scratch: Path,
        resident_bytes: int,
    ) -> None:
        self.request, self.rank, self.recording = request, rank, recording
        self.first_step = first_step
        self.steps = 0
        """Steps that have ended since."""
        self.target, self.scratch = target, scratch
        self.resident_bytes = resident_bytes
        """Memory of this process when it began."""


def _resident_bytes() -> int:
    fields = Path("/proc/self/statm").read_bytes().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")
