"""Stack dumps: every rank's stacks of a host, written into its folder and its log.

`py-spy` sees native frames and needs nothing of the process, but is not everywhere and may not be
allowed; otherwise the process writes its stacks itself, by a signal handler that Python code cannot
keep from running. One that is stopped, or that announced no handler, is left alone.
"""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from trainhall.cluster.agent.shim.hang import flight_record
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.progress import STACKS_SIGNAL, read, stacks_path
from trainhall.training.link.regular_file import open_regular

PY_SPY_SECONDS = 10.0
ANSWER_SECONDS = 1.0
"""Time for all ranks together to write their stacks."""
LONGEST_SECONDS = PY_SPY_SECONDS + ANSWER_SECONDS + flight_record.WRITE_SECONDS + 1.0
"""Time limit of `save`, with a second to write the files. It holds up its caller."""
MAX_BYTES = 64 * 1024
"""Size limit of a rank's stacks: a program may have thousands of threads."""
_POLL_SECONDS = 0.02


def save(folder: AttemptFolder, pids: Mapping[int, int], stopped: set[int]) -> None:
    """Write the stacks of ranks (rank → pid) to `stacks.txt` and the end of `stderr.log`.

    Args:
        stopped: ranks whose process is stopped and can answer nothing.
    """
    found = collect(folder, pids, stopped)
    records = flight_record.save(folder, pids)
    for rank, text in found.items():
        if rank in records:
            text += f"\nits last collectives are in {flight_record.record_path(folder, rank)}"
        with contextlib.suppress(OSError):  # a full disk: the hang is reported all the same
            _write(folder.rank(rank) / "stacks.txt", os.O_TRUNC, text)
        with contextlib.suppress(OSError):
            log = f"[trainhall] no progress; stacks of rank {rank}:\n{text}\n"
            _write(folder.stderr(rank), os.O_APPEND, log)


def collect(folder: AttemptFolder, pids: Mapping[int, int], stopped: set[int]) -> dict[int, str]:
    """Return the stacks of ranks (rank → pid), or why there are none.

    Args:
        stopped: ranks whose process is stopped and can answer nothing.
    """
    found = _py_spy(pids)
    asked = {rank: pid for rank, pid in pids.items() if rank not in found and rank not in stopped}
    found |= _answers(folder, asked)
    return {
        rank: found.get(rank) or _waits_in(pid, is_stopped=rank in stopped)
        for rank, pid in pids.items()
    }


def _py_spy(pids: Mapping[int, int]) -> dict[int, str]:
    program = shutil.which("py-spy")
    if program is None:
        return {}
    running = {}
    for rank, pid in pids.items():
        with contextlib.suppress(OSError):  # not executable here, or no process is left
            running[rank] = subprocess.Popen(
                [program, "dump", "--pid", str(pid)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
    found = {}
    until = time.monotonic() + PY_SPY_SECONDS
    for rank, process in running.items():
        try:
            output, _ = process.communicate(timeout=max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            continue
        if output:
            found[rank] = output[:MAX_BYTES].decode("utf-8", "replace")
    return found


def _answers(folder: AttemptFolder, pids: Mapping[int, int]) -> dict[int, str]:
    """Ask the processes to write their stacks themselves, and return these."""
    asked = {}
    before: dict[int, int] = {}
    for rank, pid in pids.items():
        progress = read(folder.path, pid)
        if progress is not None and progress.answers:
            with contextlib.suppress(OSError):
                path = stacks_path(folder.path, pid)
                before[rank] = path.stat().st_size  # with the answers to earlier signals
                os.kill(pid, STACKS_SIGNAL)
                asked[rank] = path
    until = time.monotonic() + ANSWER_SECONDS
    sizes: dict[int, int] = {}
    while time.monotonic() < until:
        time.sleep(_POLL_SECONDS)
        now = {rank: path.stat().st_size for rank, path in asked.items() if path.exists()}
        have_written = len(now) == len(asked) and all(now[rank] > before[rank] for rank in now)
        if now == sizes and have_written:
            break  # all have written, and none writes any more
        sizes = now
    return {rank: text for rank, path in asked.items() if (text := _read(path, before[rank]))}


def _write(path: Path, flags: int, text: str) -> None:
    with open(open_regular(path, os.O_WRONLY | os.O_CREAT | flags), "w") as file:
        file.write(text)


def _read(path: Path, start: int = 0) -> str:
    try:
        with open(open_regular(path), "rb") as file:
            file.seek(start)
            return file.read(MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _waits_in(pid: int, *, is_stopped: bool) -> str:
    why = (
        "its process is stopped"
        if is_stopped
        else "it does not respond, and py-spy is not installed"
    )
    wait = _read(Path(f"/proc/{pid}/wchan")).strip("0\n ")
    return f"not available: {why}" + (f"; it waits in the kernel ({wait})" if wait else "")
