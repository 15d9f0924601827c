"""Outcome of an attempt on a host: one outcome and one reason from the exits of its ranks."""

import json
import os
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainhall.cluster.agent.shim import failure_cause
from trainhall.training.link.failure import Failure
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.launch import Command
from trainhall.training.link.regular_file import open_regular
from trainhall.training.link.status import (
    EXIT_COMPLETED,
    EXIT_PAUSED,
    EXIT_STOPPED,
    Outcome,
    RankState,
)

LOG_TAIL_BYTES = 4096
MAX_MESSAGE_CHARS = 300
"""Characters of a rank's own words in a reason."""
_MAX_EXCEPTION_CHARS = 500
"""Characters of an exception in a reason."""
_EVENTS_TAIL_BYTES = 1024 * 1024
_COLOR = re.compile(r"\x1b\[[0-9;:]*m")
_RANK = re.compile(r"^\[rank\d+\]: ")
"""Prefix that torch puts before each line of an exception in a process group."""
_LOGGED = re.compile(r"^(\[rank\d+\]: ?)?\[[IW]\d{4} \d\d:\d\d:\d\d")
"""Beginning of a note or a warning that torch's C++ logs: those at the exit hide the exception."""
_DUMP = "Fatal Python error: "
"""Beginning of the stacks that `faulthandler` writes when a rank crashes."""
_DUMP_BYTES = 256 * 1024
_CRASHES = {signal.SIGSEGV, signal.SIGFPE, signal.SIGABRT, signal.SIGBUS, signal.SIGILL}
"""Signals at which it does. What another rank of the same number wrote may come before."""
_CRASHED_IN = re.compile(r'^Current thread .*\n  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)
_SYNTAX_ERRORS = {"SyntaxError", "IndentationError", "TabError"}
"""Exceptions of code that Python cannot compile, on another attempt either."""
_AGREED = {EXIT_COMPLETED, EXIT_PAUSED, EXIT_STOPPED}


@dataclass(frozen=True)
class AttemptContext:
    """Properties of an attempt that matter for its outcome."""

    is_script: bool
    asked: Command
    """The highest command that was given."""
    signalled: bool
    """The ranks were sent SIGTERM or SIGKILL because of it."""


def failed(rank: RankState, work: AttemptContext) -> bool:
    """Return whether this rank failed, rather than ended as asked or with its work done."""
    if rank.exit_code is None and rank.signal is None:
        return False
    if work.signalled or work.asked is Command.STOP:
        # However it left, it was asked to.
        return False
    if work.is_script:
        agreed = work.asked is Command.PAUSE and rank.exit_code in _AGREED
        return rank.exit_code != 0 and not agreed
    return rank.exit_code not in _AGREED


def first_failing(ended: Sequence[RankState], work: AttemptContext) -> RankState | None:
    """Return the rank to blame among those found ended at the same moment.

    One that a signal ended is the cause rather than the consequence: its peers fail because their
    connections break.
    """
    found = [rank for rank in ended if failed(rank, work)]
    return min(found, key=lambda r: (r.signal is None, r.rank), default=None)


def outcome_of(
    ranks: Sequence[RankState], work: AttemptContext, failure: Failure | None
) -> tuple[Outcome, Failure | None]:
    """Return the attempt's outcome on this host, once all its ranks have ended."""
    if failure is not None:
        return Outcome.FAILED, failure
    codes = {rank.exit_code for rank in ranks}
    if codes == {EXIT_COMPLETED} and not (work.is_script and work.signalled):
        return Outcome.COMPLETED, None
    if work.is_script or work.signalled:
        return (Outcome.PAUSED if work.asked is Command.PAUSE else Outcome.STOPPED), None
    if codes == {EXIT_COMPLETED, EXIT_STOPPED} and work.asked is not Command.STOP:
        # Those that stopped had come for a generation before which the others completed the job.
        return Outcome.COMPLETED, None
    if codes == {EXIT_PAUSED}:
        return Outcome.PAUSED, None
    if not ranks or EXIT_STOPPED in codes or work.asked is Command.STOP:
        return Outcome.STOPPED, None
    ends = ", ".join(f"rank {r.rank} with {r.exit_code}" for r in ranks)
    return Outcome.FAILED, Failure(
        message=f"the ranks did not agree on how to end: {ends} "
        f"({EXIT_COMPLETED} completed, {EXIT_PAUSED} paused)"
    )


def describe_failure(folder: AttemptFolder, rank: RankState, *, out_of_memory: bool) -> Failure:
    """Describe why a rank failed, in its own words where it left any."""
    began_as, generation = rank.writer
    tail = last_lines(folder.stderr(began_as))
    stderr_tail, location = tail, ""
    if rank.signal in _CRASHES:
        stderr_tail, location = before_crash(folder.stderr(began_as))
    final, exception, without_message = False, None, False
    not_compiled = False
    worker_signal: int | None = None
    if event := last_failure(folder.events(began_as, generation)):
        exception = str(event.get("type") or "") or None
        text = f"{event.get('type', 'error')}: {event.get('message', '')}"
        message = f"rank {rank.rank} failed: {' '.join(text.split())[:_MAX_EXCEPTION_CHARS]}"
        final = event.get("final") is True
        not_compiled = exception in _SYNTAX_ERRORS
        if isinstance(event.get("worker_signal"), int):
            worker_signal = event["worker_signal"]
    else:
        message = f"rank {rank.rank} {_describe_exit(rank, out_of_memory)}"
        # What a rank wrote last has nothing to do with a SIGKILL, which leaves it no word.
        if rank.signal != signal.SIGKILL and (words := last_message(stderr_tail)):
            message += f": {words}"
            not_compiled = rank.exit_code == 1 and words.partition(":")[0] in _SYNTAX_ERRORS
        else:
            without_message = True
    classified = failure_cause.classify_failure(
        failure_cause.RankExit(
            words=message,
            exception=exception,
            exit_code=rank.exit_code,
            signal=rank.signal,
            worker_signal=worker_signal,
            final=final,
            log_tail=stderr_tail,
            memory_kills=out_of_memory,
        )
    )
    return Failure(
        rank=rank.rank,
        exit_code=rank.exit_code,
        signal=rank.signal,
        message=message,
        without_message=without_message,
        final=final or not_compiled,
        log_tail=tail,
        cause=classified.cause,
        evidence=f"{classified.evidence} in {location}" if location else classified.evidence,
        time=rank.finished_at,
    )


def _describe_exit(rank: RankState, out_of_memory: bool) -> str:
    if rank.signal is None:
        return f"ended with exit code {rank.exit_code}"
    try:
        name = signal.Signals(rank.signal).name
    except ValueError:
        name = f"signal {rank.signal}"
    why = " (the host ran out of memory)" if out_of_memory and name == "SIGKILL" else ""
    return f"was ended by {name}{why}"


def last_failure(events: Path) -> dict[str, Any] | None:
    """Return the newest `failure` event of a rank, if it wrote one."""
    for line in reversed(_tail(events, _EVENTS_TAIL_BYTES).splitlines()):
        try:
            event = json.loads(line)
        except ValueError:
            # A line that a kill cut short.
            continue
        if isinstance(event, dict) and event.get("kind") == "failure":
            data = event.get("data")
            return data if isinstance(data, dict) else {}
    return None


def last_message(text: str) -> str:
    """Return the last readable line of an output that is no warning, fit for a sentence; the last
    warning where there is nothing else."""
    lines = [_COLOR.sub("", line) for line in reversed(text.splitlines())]
    for line in sorted(lines, key=lambda line: _LOGGED.match(line) is not None):
        plain = "".join(c if c.isprintable() else " " for c in line)
        if words := _RANK.sub("", " ".join(plain.split())):
            return (
                words if len(words) <= MAX_MESSAGE_CHARS else words[: MAX_MESSAGE_CHARS - 1] + "…"
            )
    return ""


def before_crash(path: Path) -> tuple[str, str]:
    """Return a rank's last line before it wrote its stacks, and the place of the crash in them."""
    data = _tail(path, _DUMP_BYTES)
    stderr_tail, dump, stacks = data.rpartition(b"\n" + _DUMP.encode())
    if not dump and data.startswith(_DUMP.encode()):
        stderr_tail, stacks = b"", data
    elif not dump:
        stderr_tail, stacks = data, b""
    location = _CRASHED_IN.search(stacks.decode("utf-8", "replace"))
    where = f"{location[3]} ({location[1]}, line {location[2]})" if location else ""
    return _last_lines(stderr_tail[-LOG_TAIL_BYTES:]), where


def last_lines(path: Path) -> str:
    """Return the end of an output, from the start of a line, at most LOG_TAIL_BYTES."""
    return _last_lines(_tail(path, LOG_TAIL_BYTES))


def _last_lines(data: bytes) -> str:
    if len(data) == LOG_TAIL_BYTES and b"\n" in data[:-1]:
        data = data.partition(b"\n")[2]
    text = data.decode("utf-8", "replace")
    # Replacement characters are longer than what they replace, and a NUL byte is no text.
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")[-LOG_TAIL_BYTES:]


def _tail(path: Path, size: int) -> bytes:
    try:
        with open(open_regular(path), "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - size))
            return file.read(size)
    except OSError:  # never written, or damaged: the end is reported without it
        return b""


def out_of_memory_kills() -> int:
    """Return the number of processes that the kernel has killed for lack of memory since boot."""
    try:
        text = Path("/proc/vmstat").read_text()
    except OSError:
        return 0
    found = [line.split()[1] for line in text.splitlines() if line.startswith("oom_kill ")]
    return int(found[0]) if found else 0
