"""Failure cause of a rank's exit: one pure function over a table of evidence.

The first row that matches decides. The rank's own message comes before its log, and a signal before
both where it gives the rank no chance to write one.
"""

import re
import signal as signals
from dataclasses import dataclass

from trainhall.training.link.failure import Cause

LAST_LINES = 20
"""Number of log lines that are searched: earlier ones are seldom the cause."""


@dataclass(frozen=True)
class RankExit:
    """A rank's exit, with what else is known about it."""

    words: str = ""
    """Message of its end: its exception, or the last line that it wrote."""
    exception: str | None = None
    """Class name of the exception, if reported."""
    exit_code: int | None = None
    signal: int | None = None
    worker_signal: int | None = None
    """Signal that ended a data worker of the rank, if reported."""
    final: bool = False
    """True if it reported that another attempt would fail in the same way."""
    log_tail: str = ""
    memory_kills: bool = False
    """The kernel has killed processes of this host for want of memory meanwhile."""


@dataclass(frozen=True)
class FailureClass:
    cause: Cause
    evidence: str
    """Source of the verdict: the rank's message, a signal, an exit code."""


_TYPES: dict[str, Cause] = {
    **dict.fromkeys(("OutOfMemoryError", "MemoryError"), Cause.OUT_OF_MEMORY),
    **dict.fromkeys(
        (
            "JoinError", "CollectiveError", "PeerLostError", "PeerGoneError", "RankLostError",
            "DistNetworkError", "DistStoreError", "ConnectionError", "ConnectionResetError",
            "ConnectionRefusedError", "ConnectionAbortedError", "BrokenPipeError",
        ),
        Cause.NETWORK,
    ),
    **dict.fromkeys(
        (
            "NotSavedError", "SaveFailedError", "UnreadableCheckpointError", "BadCheckpointError",
            "StorageNotSharedError",
        ),
        Cause.STORAGE,
    ),
    "NoGoodCheckpointError": Cause.BAD_CHECKPOINT,
    "GpuMissingError": Cause.DEVICE_FAULT,
    **dict.fromkeys(
        (
            "NonFiniteLossError", "DatasetMismatchError", "ModelMismatchError", "NoGradientError",
            "StorageNotWritableError",
        ),
        Cause.USER_ERROR,
    ),
}  # fmt: skip
"""Classes of exceptions that say it by their name alone; words of the table below go first."""

_WORDS: tuple[tuple[Cause, str], ...] = (
    # Xid and ECC are NVIDIA's words of broken hardware; those of an application's own faults (13,
    # 31, 43) are not among them.
    (Cause.DEVICE_FAULT, r"uncorrectable ecc|ecc error|double[- ]bit error|row remap"),
    (Cause.DEVICE_FAULT, r"\bxid\b\D{0,20}\b(48|62|63|64|74|79|92|94|95|119|120)\b"),
    (Cause.DEVICE_FAULT, r"fallen off the bus|gpu is lost|nvlink error|hardware error"),
    (Cause.DEVICE_FAULT, r"no cuda-capable device|cuda driver initialization failed"),
    (Cause.DEVICE_FAULT, r"cuda error: (unknown error|device not ready|operation not supported)"),
    (Cause.DEVICE_FAULT, r"driver/library version mismatch|cuda_error_(ecc|device_unavailable)"),
    (Cause.OUT_OF_MEMORY, r"out of memory|can't allocate memory|cannot allocate memory"),
    (Cause.OUT_OF_MEMORY, r"cublas_status_alloc_failed|cudaerrormemoryallocation|\boom[- ]kill"),
    (Cause.OUT_OF_MEMORY, r"\bstd::bad_alloc\b|\bmemoryerror\b"),
    (Cause.STORAGE, r"no space left on device|disk quota exceeded|stale (nfs )?file handle"),
    (Cause.STORAGE, r"input/output error|read-only file system|file too large"),
    # A rank that missed a collective: whether it hung or was cut off is unknown yet.
    (Cause.HANG, r"collective operation timeout|watchdog (caught|timeout)"),
    (Cause.HANG, r"timed out waiting \d+ ?ms for (recv|send) operation"),
    (Cause.NETWORK, r"connection (closed|reset|refused|aborted)|broken pipe|reset by peer"),
    (Cause.NETWORK, r"no route to host|network is unreachable|name resolution|socket timeout"),
    (Cause.NETWORK, r"\bgloo\b|nccl (error|warn)|ncclsystemerror|ncclremoteerror|ncclinternal"),
    (Cause.NETWORK, r"failed to connect|could not connect"),
    (Cause.USER_ERROR, r"device-side assert|illegal memory access|modulenotfounderror"),
)
_TABLE = tuple((cause, re.compile(pattern, re.IGNORECASE)) for cause, pattern in _WORDS)
_EXCEPTION = re.compile(r"(?:^|[\s.:])([A-Z]\w*(?:Error|Exception|Interrupt|Warning))\b")

_CRASHES = frozenset(
    {signals.SIGSEGV, signals.SIGABRT, signals.SIGBUS, signals.SIGFPE, signals.SIGILL,
     signals.SIGTRAP, signals.SIGSYS}
)  # fmt: skip
_SHELL_SIGNAL = 128
"""A shell that a signal's end passes through adds this to the signal's number."""
_TORCH_WORKER = re.compile(r"DataLoader worker \(pid \d+\) is killed by signal: ([\w ]+)")
_SIGNALS = {signals.strsignal(each): each for each in signals.Signals}


def classify_failure(end: RankExit) -> FailureClass:
    """Classify the cause of one rank's end."""
    number = _signal(end)
    name = _name(number)
    if number == signals.SIGKILL:
        if end.memory_kills:
            return FailureClass(
                Cause.OUT_OF_MEMORY, f"{name}, and the kernel freed memory by killing"
            )
        return FailureClass(Cause.KILLED, f"{name} from outside")
    found = _match_message(end)
    if found is not None:
        return found
    if number in _CRASHES:
        return FailureClass(Cause.CRASH, str(name))
    if name is not None:
        return FailureClass(Cause.KILLED, f"{name} from outside")
    if end.final:
        return FailureClass(Cause.USER_ERROR, "another attempt would fail in the same way")
    if exception := end.exception or _exception(end.words) or _exception(end.log_tail):
        return FailureClass(Cause.USER_ERROR, exception)
    if end.exit_code:
        return FailureClass(Cause.USER_ERROR, f"exit code {end.exit_code}")
    return FailureClass(Cause.UNKNOWN, "")


def _signal(end: RankExit) -> int | None:
    """Return the signal that ended the rank, or a data worker that it depends on."""
    if end.signal is not None:
        return end.signal
    if end.worker_signal is not None:
        return end.worker_signal
    if worker := _TORCH_WORKER.search(end.words):
        return _SIGNALS.get(worker[1].strip())
    if end.exit_code is not None and end.exit_code > _SHELL_SIGNAL:
        return end.exit_code - _SHELL_SIGNAL
    return None


def _match_message(end: RankExit) -> FailureClass | None:
    """Match the rank's message, then its class of exception, then the end of its log."""
    if end.final:
        return None
    if found := _match(end.words):
        return found
    cause = _TYPES.get(end.exception or _exception(end.words) or "")
    if cause is not None:
        return FailureClass(cause, end.exception or _exception(end.words) or "")
    if end.exception is not None:
        return None  # it named what ended it: what was logged before did not
    return _match("\n".join(end.log_tail.splitlines()[-LAST_LINES:]))


def _match(text: str) -> FailureClass | None:
    for cause, pattern in _TABLE:
        if match := pattern.search(text):
            return FailureClass(cause, match.group(0))
    return None


def _exception(text: str) -> str | None:
    found = _EXCEPTION.findall(text)
    return found[-1] if found else None


def _name(number: int | None) -> str | None:
    is_known = number in list(signals.Signals)
    return signals.Signals(number).name if number is not None and is_known else None
