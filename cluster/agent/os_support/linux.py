"""Linux only: adopting orphans, dying with the parent, and identifying a process.

Elsewhere every function does nothing as its result shows; the shim then relies on process groups
and on the environment alone.
"""

import ctypes
import os
import signal
import sys

from trainhall.training.process.forked import PADDING_VARIABLE

IS_LINUX = sys.platform == "linux"

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37
_PR_SET_NO_NEW_PRIVS = 38

PADDING_BYTES = 8192


def environment_padding() -> dict[str, str]:
    """Return environment entries whose space can label the forks of a process."""
    return {PADDING_VARIABLE: "." * PADDING_BYTES} if IS_LINUX else {}


def adopt_orphans() -> bool:
    """Become the parent of every descendant whose own parent ends."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def adopts_orphans() -> bool:
    """Return whether this process has called `adopt_orphans`."""
    if not IS_LINUX:
        return False
    answer = ctypes.c_int()
    ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0)
    return answer.value == 1


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel to kill this process when its parent ends; end now if it has ended."""
    if not _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL):
        return
    if os.getppid() != parent_pid:
        os._exit(1)


def forbid_new_privileges() -> bool:
    """Forbid every program that this process or its children execute to get further rights."""
    return _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def be_readable() -> bool:
    """Allow other processes of this process's user read its `/proc` files, and trace it."""
    return _prctl(_PR_SET_DUMPABLE, 1)


def set_name(name: str) -> None:
    """Name this process in `ps` and `top` (15 bytes are shown)."""
    if IS_LINUX:
        buffer = ctypes.create_string_buffer(name.encode()[:15])
        ctypes.CDLL(None).prctl(_PR_SET_NAME, buffer, 0, 0, 0)


def show_environment(variables: dict[str, str]) -> bool:
    """Write variables into the room that an ancestor left; False where there is no room for them.

    Only what others see of this process changes, not `os.environ`.
    """
    if not IS_LINUX:
        return False
    start, end = _environment_block()
    block = ctypes.string_at(start, end - start)
    prefix = f"{PADDING_VARIABLE}=".encode()
    at = block.find(b"\0" + prefix) + 1 if not block.startswith(prefix) else 0
    if at == 0 and not block.startswith(prefix):
        return False
    size = block.index(b"\0", at) - at
    entries = b"".join(f"{k}={v}".encode() + b"\0" for k, v in variables.items())
    left = size - len(entries) - len(prefix)
    if left < 0:
        return False
    # The rest stays a variable of its own: an empty entry would end the list for its readers, and a
    # later process, forked from this one, finds room again.
    text = entries + prefix + b"." * left
    ctypes.memmove(start + at, text, len(text))
    return True


def _environment_block() -> tuple[int, int]:
    """Return the address range of this process's environment: fields 50, 51 of proc(5)'s `stat`."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return int(fields[47]), int(fields[48])


def _prctl(option: int, value: int) -> bool:
    if not IS_LINUX:
        return False
    return bool(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0)
