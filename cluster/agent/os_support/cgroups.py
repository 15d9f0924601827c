"""Control groups (v2) of attempts: nothing leaves one, and one write ends all that is in it.

An agent makes them below its own group, where that is delegated to it, as by systemd's
`Delegate=yes`. Limits need the controllers, which a group may pass on only if it holds no process
itself: so the agent has to be in a group `agent` below the delegated one, as by
`DelegateSubgroup=agent`. Without that, attempts have groups without limits.
"""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
AGENT = "agent"
"""Name of the agent's own group within the delegated one."""
MAX_PIDS = 32_768
"""Processes and threads of an attempt, against fork bombs."""
RESERVED_BYTES, RESERVED_SHARE = 512 * 2**20, 0.05
"""Memory that attempts leave to the agent and the host, the larger of the two."""


@dataclass(frozen=True)
class Cgroups:
    """The groups of attempts below a delegated one."""

    base: Path
    has_limits: bool

    def make(self, name: str, memory: int) -> Path | None:
        """Make the group of an attempt; None where that is not possible.

        Args:
            memory: limit of the attempt, bytes (`usable_memory` of the host if none was set).
        """
        group = self.base / name
        try:
            group.mkdir(exist_ok=True)
        except OSError:
            return None
        if self.has_limits:
            # One of them may be missing: a host need not have both controllers.
            _write(group / "memory.max", str(memory))
            _write(group / "pids.max", str(MAX_PIDS))
        return group

    def pids(self, name: str) -> set[int]:
        """Return the processes in a group; none where there is no such group."""
        try:
            return {int(pid) for pid in (self.base / name / "cgroup.procs").read_text().split()}
        except (OSError, ValueError):
            return set()

    def kill(self, name: str) -> None:
        """End all processes of a group at once; before Linux 5.14 this does nothing."""
        path = self.base / name / "cgroup.kill"
        if path.exists():
            _write(path, "1")

    def remove(self, name: str) -> bool:
        """Remove a group; False while a process is in it."""
        try:
            (self.base / name).rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True


def usable_memory(total: int) -> int:
    """Return the memory that attempts may use of a host's total, bytes."""
    reserved = max(RESERVED_BYTES, int(total * RESERVED_SHARE))
    return max(total - reserved, total // 2)


def find(root: Path = ROOT, own: Path = OWN) -> Cgroups | None:
    """Return where groups of attempts can be made; None: nothing is delegated to this process.

    Args:
        root: the folder where the unified hierarchy is mounted.
        own: the file that names this process's group.
    """
    if not (root / "cgroup.controllers").is_file():
        return None  # version 1, or another system
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return None
    path = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    # The root group belongs to the system.
    if not path:
        return None
    group = root / path
    is_nested = group.name == AGENT
    base = group.parent if is_nested else group
    if base == root or not base.is_dir() or not _is_delegated(base):
        return None
    has_limits = is_nested and _write(base / "cgroup.subtree_control", "+memory +pids")
    return Cgroups(base, has_limits)


def enter(group: Path) -> None:
    """Move this process into a group.

    Raises:
        OSError: the group is gone, or is not delegated to this process.
    """
    (group / "cgroup.procs").write_text("0")


def _is_delegated(group: Path) -> bool:
    """Return whether systemd has left a group to this process. Root may write to every group."""
    if os.geteuid() != 0:
        return os.access(group, os.W_OK) and os.access(group / "cgroup.procs", os.W_OK)
    for mark in ("trusted.delegate", "user.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(group, mark) == b"1":
                return True
    return False


def _write(path: Path, text: str) -> bool:
    with contextlib.suppress(OSError):
        path.write_text(text)
        return True
    return False
