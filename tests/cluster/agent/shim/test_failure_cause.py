"""What ends are the signs of, row by row."""

import signal

import pytest

from trainhall.cluster.agent.shim.failure_cause import RankExit, classify_failure
from trainhall.training.link.failure import Cause

TORCHS = "DataLoader worker (pid 7) is killed by signal:"


@pytest.mark.parametrize(
    ("end", "cause", "evidence"),
    [
        (RankExit(signal=9), Cause.KILLED, "SIGKILL"),
        (RankExit(signal=9, memory_kills=True), Cause.OUT_OF_MEMORY, "kernel"),
        # What a rank had logged before a SIGKILL has nothing to do with it.
        (RankExit(signal=9, log_tail="ValueError: old news"), Cause.KILLED, "SIGKILL"),
        (RankExit(exit_code=137), Cause.KILLED, "SIGKILL"),
        (RankExit(exit_code=139), Cause.CRASH, "SIGSEGV"),
        (RankExit(signal=11), Cause.CRASH, "SIGSEGV"),
        (RankExit(signal=7, memory_kills=True), Cause.CRASH, "SIGBUS"),
        (RankExit(signal=15), Cause.KILLED, "SIGTERM"),
        (RankExit(signal=signal.SIGRTMAX + 5), Cause.UNKNOWN, ""),
        (
            RankExit(signal=6, log_tail="throwing an instance of\nstd::bad_alloc"),
            Cause.OUT_OF_MEMORY,
            "bad_alloc",
        ),
        (
            RankExit(
                signal=6, log_tail="[Rank 3] Watchdog caught collective operation timeout: WorkN"
            ),
            Cause.HANG,
            "Watchdog caught",
        ),
        (
            RankExit(words="rank 0 failed: ValueError: wrong", exception="ValueError", exit_code=1),
            Cause.USER_ERROR,
            "ValueError",
        ),
        (RankExit(words="rank 0 ended with exit code 1: KeyError: 3", exit_code=1),
         Cause.USER_ERROR,
         "KeyError"),
        (RankExit(exit_code=3, log_tail="no data"), Cause.USER_ERROR, "exit code 3"),
        (RankExit(exit_code=127, log_tail="sh: trian: not found"),
         Cause.USER_ERROR, "exit code 127"),
        # An exception that was logged, and survived, is not what ended it.
        (
            RankExit(
                words="rank 0 failed: KeyError: 'x'",
                exception="KeyError",
                exit_code=1,
                log_tail="retrying: Connection reset by peer",
            ),
            Cause.USER_ERROR,
            "KeyError",
        ),
        (
            RankExit(
                words="rank 2 failed: OutOfMemoryError: rank 2 ran", exception="OutOfMemoryError"
            ),
            Cause.OUT_OF_MEMORY,
            "OutOfMemoryError",
        ),
        (
            RankExit(words="RuntimeError: DefaultCPUAllocator: can't allocate memory", exit_code=1),
            Cause.OUT_OF_MEMORY,
            "can't allocate memory",
        ),
        (
            RankExit(
                words="torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"
            ),
            Cause.DEVICE_FAULT,
            "uncorrectable ECC",
        ),
        (
            RankExit(
                exit_code=1, log_tail="NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus"
            ),
            Cause.DEVICE_FAULT,
            "fallen off the bus",
        ),
        (RankExit(exit_code=1, words="NVRM: Xid (PCI:0000:3b:00): 31, MMU fault"), Cause.USER_ERROR,
         "exit code 1"),
        (
            RankExit(words="CUDA error: device-side assert triggered", exit_code=1),
            Cause.USER_ERROR,
            "device-side assert",
        ),
        (
            RankExit(
                words="RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] "
                "Connection closed by peer [127.0.0.1]:4711",
                exception="RuntimeError",
            ),
            Cause.NETWORK,
            "Connection closed",
        ),
        (
            RankExit(
                words="DistBackendError: NCCL error in: ProcessGroupNCCL.cpp, ncclRemoteError"
            ),
            Cause.NETWORK,
            "NCCL error",
        ),
        (
            RankExit(
                words="RuntimeError: Timed out waiting 1800000ms for recv operation to complete"
            ),
            Cause.HANG,
            "Timed out waiting",
        ),
        (
            RankExit(words="rank 1 failed: JoinError: rank 0", exception="JoinError"),
            Cause.NETWORK,
            "JoinError",
        ),
        (
            RankExit(words="OSError: [Errno 28] No space left on device", exception="OSError"),
            Cause.STORAGE,
            "No space left",
        ),
        (
            RankExit(
                words="rank 0 failed: NotSavedError: rank 0 could not", exception="NotSavedError"
            ),
            Cause.STORAGE,
            "NotSavedError",
        ),
        # A path that nobody can write to is the job's, and a disk that takes nothing its host's.
        (
            RankExit(words="rank 0 failed: StorageNotWritableError: checkpoint.path: rank 0 cannot "
                "write in /proc/typo: No such file or directory; name a folder",
                exception="StorageNotWritableError", exit_code=1),
            Cause.USER_ERROR,
            "StorageNotWritableError",
        ),
        (
            RankExit(words="rank 0 failed: StorageNotWritableError: checkpoint.path: rank 0 cannot "
                "write in /mnt/a: Read-only file system; name",
                exception="StorageNotWritableError", exit_code=1),
            Cause.STORAGE,
            "Read-only file system",
        ),
        # It is no better on another node; what one's disk does not read may be.
        (
            RankExit(words="rank 0 failed: NoGoodCheckpointError: no checkpoint can be loaded: "
                "step-00000010-a1-g1 was not used: state.json: expected SHA-256 0, found 1",
                exception="NoGoodCheckpointError", exit_code=1),
            Cause.BAD_CHECKPOINT,
            "NoGoodCheckpointError",
        ),
        (
            RankExit(words="rank 0 failed: NoGoodCheckpointError: no checkpoint can be loaded: "
                "step-00000010-a1-g1 was not used: state.json: expected a file of 2 bytes, found "
                "Permission denied", exception="UnreadableCheckpointError", exit_code=1),
            Cause.STORAGE,
            "UnreadableCheckpointError",
        ),
        # A rank ends by what ended its data worker.
        (
            RankExit(words="rank 0 failed: DataWorkerDiedError: data worker 0 has died",
                exception="DataWorkerDiedError", exit_code=1, worker_signal=9),
            Cause.KILLED,
            "SIGKILL from outside",
        ),
        (
            RankExit(words="rank 0 failed: DataWorkerDiedError: data worker 0 has died",
                exception="DataWorkerDiedError", exit_code=1, worker_signal=9, memory_kills=True),
            Cause.OUT_OF_MEMORY,
            "SIGKILL, and the kernel",
        ),
        (
            RankExit(words="rank 0 failed: DataWorkerDiedError: data worker 0 has died",
                exception="DataWorkerDiedError", worker_signal=11),
            Cause.CRASH,
            "SIGSEGV",
        ),
        (
            RankExit(words=f"RuntimeError: {TORCHS} Killed. ", exit_code=1),
            Cause.KILLED,
            "SIGKILL from outside",
        ),
        (
            RankExit(words=f"RuntimeError: {TORCHS} Segmentation fault.", exit_code=1),
            Cause.CRASH,
            "SIGSEGV",
        ),
        (
            RankExit(
                words="rank 0 failed: DataWorkerDiedError: data worker 0 (process 7) ended with "
                "exit",
                exception="DataWorkerDiedError", exit_code=1),
            Cause.USER_ERROR,
            "DataWorkerDiedError",
        ),
        # What is final is the user's, whatever words it comes with.
        (
            RankExit(words="rank 0 failed: BadDataError: broken pipe",
                exception="BadDataError", final=True),
            Cause.USER_ERROR,
            "same way",
        ),
        (RankExit(), Cause.UNKNOWN, ""),
    ],
)  # fmt: skip
def test_failure_cause_follows_the_evidence(end: RankExit, cause: Cause, evidence: str) -> None:
    classified = classify_failure(end)
    assert classified.cause is cause
    assert evidence in classified.evidence


def test_failure_cause_ignores_early_log_lines() -> None:
    noise = "\n".join(f"step {n}" for n in range(40))
    failure = classify_failure(RankExit(exit_code=1, log_tail=f"No space left on device\n{noise}"))
    assert failure.cause is Cause.USER_ERROR
