"""Leaves nothing behind, however the process that runs scenarios ends.

    python guard.py FOLDER [GROUP]

Waits until standard input closes. Then it kills every process that has FOLDER or something below it
as its `TRAINHALL_RUNTIME_DIR`, which all that a cluster starts inherits; unmounts what is mounted
below FOLDER; and removes the memory control group GROUP.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_LIMIT_SECONDS = 20.0


def kill_all(folder: Path) -> None:
    """Until none is left: one that is killed may just have started another."""
    deadline = time.monotonic() + _LIMIT_SECONDS
    while (left := _processes(folder)) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _processes(folder: Path) -> list[int]:
    mark = f"TRAINHALL_RUNTIME_DIR={folder}/".encode()
    found = []
    for entry in Path("/proc").iterdir():
        # A process that is gone or another user's is none of ours; a zombie has no environment.
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


def unmount_all(folder: Path) -> None:
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted(mounts, reverse=True):
        if mount.startswith(f"{folder}/"):
            subprocess.run(["umount", "--lazy", mount], check=False)


@contextlib.contextmanager
def guarded(folder: Path, *groups: Path) -> Iterator[None]:
    """What is started in the folder ends with the context, or with this process."""
    guard = subprocess.Popen(
        [sys.executable, "-S", __file__, folder, *groups],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield
    finally:
        guard.communicate()


def main() -> None:
    folder = Path(sys.argv[1])
    # The terminal's Ctrl-C is for the one that is watched.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin.buffer.read()
    kill_all(folder)
    unmount_all(folder)
    for group in sys.argv[2:]:
        with contextlib.suppress(OSError):
            Path(group).rmdir()


if __name__ == "__main__":
    main()
