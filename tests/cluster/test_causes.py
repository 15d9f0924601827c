"""What ends are the signs of, row by row."""

import signal

import pytest

from trainhall.cluster.causes import End, judge
from trainhall.training.cause import Cause

OURS = "data worker 0 (process 7) was ended by"
TORCHS = "DataLoader worker (pid 7) is killed by signal:"


@pytest.mark.parametrize(
    ("end", "cause", "evidence"),
    [
        (End(signal=9), Cause.KILLED, "SIGKILL"),
        (End(signal=9, memory_kills=True), Cause.OUT_OF_MEMORY, "kernel"),
        # What a rank had logged before a SIGKILL has nothing to do with it.
        (End(signal=9, log_tail="ValueError: old news"), Cause.KILLED, "SIGKILL"),
        (End(exit_code=137), Cause.KILLED, "SIGKILL"),
        (End(exit_code=139), Cause.CRASH, "SIGSEGV"),
        (End(signal=11), Cause.CRASH, "SIGSEGV"),
        (End(signal=7, memory_kills=True), Cause.CRASH, "SIGBUS"),
        (End(signal=15), Cause.KILLED, "SIGTERM"),
        (End(signal=signal.SIGRTMAX + 5), Cause.UNKNOWN, ""),
        (
            End(signal=6, log_tail="throwing an instance of\nstd::bad_alloc"),
            Cause.OUT_OF_MEMORY,
            "bad_alloc",
        ),
        (
            End(signal=6, log_tail="[Rank 3] Watchdog caught collective operation timeout: WorkN"),
            Cause.HANG,
            "Watchdog caught",
        ),
        (
            End(words="rank 0 failed: ValueError: wrong", exception="ValueError", exit_code=1),
            Cause.USER_ERROR,
            "ValueError",
        ),
        (End(words="rank 0 ended with exit code 1: KeyError: 3", exit_code=1), Cause.USER_ERROR,
         "KeyError"),
        (End(exit_code=3, log_tail="no data"), Cause.USER_ERROR, "exit code 3"),
        (End(exit_code=127, log_tail="sh: trian: not found"), Cause.USER_ERROR, "exit code 127"),
        # An exception that was logged, and survived, is not what ended it.
        (
            End(
                words="rank 0 failed: KeyError: 'x'",
                exception="KeyError",
                exit_code=1,
                log_tail="retrying: Connection reset by peer",
            ),
            Cause.USER_ERROR,
            "KeyError",
        ),
        (
            End(words="rank 2 failed: OutOfMemory: rank 2 ran", exception="OutOfMemory"),
            Cause.OUT_OF_MEMORY,
            "OutOfMemory",
        ),
        (
            End(words="RuntimeError: DefaultCPUAllocator: can't allocate memory", exit_code=1),
            Cause.OUT_OF_MEMORY,
            "can't allocate memory",
        ),
        (
            End(words="torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"),
            Cause.DEVICE_FAULT,
            "uncorrectable ECC",
        ),
        (
            End(exit_code=1, log_tail="NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus"),
            Cause.DEVICE_FAULT,
            "fallen off the bus",
        ),
        (End(exit_code=1, words="NVRM: Xid (PCI:0000:3b:00): 31, MMU fault"), Cause.USER_ERROR,
         "exit code 1"),
        (
            End(words="CUDA error: device-side assert triggered", exit_code=1),
            Cause.USER_ERROR,
            "device-side assert",
        ),
        (
            End(
                words="RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] "
                "Connection closed by peer [127.0.0.1]:4711",
                exception="RuntimeError",
            ),
            Cause.NETWORK,
            "Connection closed",
        ),
        (
            End(words="DistBackendError: NCCL error in: ProcessGroupNCCL.cpp, ncclRemoteError"),
            Cause.NETWORK,
            "NCCL error",
        ),
        (
            End(words="RuntimeError: Timed out waiting 1800000ms for recv operation to complete"),
            Cause.HANG,
            "Timed out waiting",
        ),
        (
            End(words="rank 1 failed: NotJoined: rank 0", exception="NotJoined"),
            Cause.NETWORK,
            "NotJoined",
        ),
        (
            End(words="OSError: [Errno 28] No space left on device", exception="OSError"),
            Cause.STORAGE,
            "No space left",
        ),
        (
            End(words="rank 0 failed: NotSaved: rank 0 could not", exception="NotSaved"),
            Cause.STORAGE,
            "NotSaved",
        ),
        # A path that nobody can write to is the job's, and a disk that takes nothing its host's.
        (
            End(words="rank 0 failed: NotWritable: checkpoint.path: rank 0 cannot write in "
                "/proc/typo: No such file or directory; name a folder",
                exception="NotWritable", exit_code=1),
            Cause.USER_ERROR,
            "NotWritable",
        ),
        (
            End(words="rank 0 failed: NotWritable: checkpoint.path: rank 0 cannot write in "
                "/mnt/a: Read-only file system; name", exception="NotWritable", exit_code=1),
            Cause.STORAGE,
            "Read-only file system",
        ),
        # It is no better on another node; what one's disk does not read may be.
        (
            End(words="rank 0 failed: NoGoodCheckpoint: no checkpoint can be loaded: "
                "step-00000010-a1-g1 was not used: state.json: expected SHA-256 0, found 1",
                exception="NoGoodCheckpoint", exit_code=1),
            Cause.BAD_CHECKPOINT,
            "NoGoodCheckpoint",
        ),
        (
            End(words="rank 0 failed: NoGoodCheckpoint: no checkpoint can be loaded: "
                "step-00000010-a1-g1 was not used: state.json: expected a file of 2 bytes, found "
                "Permission denied", exception="NotReadable", exit_code=1),
            Cause.STORAGE,
            "NotReadable",
        ),
        # A rank ends by what ended its data worker.
        (
            End(words=f"rank 0 failed: DataWorkerDied: {OURS} SIGKILL; if the host is short of",
                exception="DataWorkerDied", exit_code=1),
            Cause.KILLED,
            "SIGKILL from outside",
        ),
        (
            End(words=f"rank 0 failed: DataWorkerDied: {OURS} SIGKILL; if the host is short of",
                exception="DataWorkerDied", exit_code=1, memory_kills=True),
            Cause.OUT_OF_MEMORY,
            "SIGKILL, and the kernel",
        ),
        (
            End(words=f"rank 0 failed: DataWorkerDied: {OURS} SIGSEGV", exception="DataWorkerDied"),
            Cause.CRASH,
            "SIGSEGV",
        ),
        (
            End(words=f"RuntimeError: {TORCHS} Killed. ", exit_code=1),
            Cause.KILLED,
            "SIGKILL from outside",
        ),
        (
            End(words=f"RuntimeError: {TORCHS} Segmentation fault.", exit_code=1),
            Cause.CRASH,
            "SIGSEGV",
        ),
        (
            End(words="rank 0 failed: DataWorkerDied: data worker 0 (process 7) ended with exit",
                exception="DataWorkerDied", exit_code=1),
            Cause.USER_ERROR,
            "DataWorkerDied",
        ),
        # What is final is the user's, whatever words it comes with.
        (
            End(words="rank 0 failed: BadData: broken pipe", exception="BadData", final=True),
            Cause.USER_ERROR,
            "same way",
        ),
        (End(), Cause.UNKNOWN, ""),
    ],
)  # fmt: skip
def test_an_end_is_judged_by_its_evidence(end: End, cause: Cause, evidence: str) -> None:
    judged = judge(end)
    assert judged.cause is cause
    assert evidence in judged.evidence


def test_what_lies_far_back_in_the_log_decides_nothing() -> None:
    noise = "\n".join(f"step {n}" for n in range(40))
    judged = judge(End(exit_code=1, log_tail=f"No space left on device\n{noise}"))
    assert judged.cause is Cause.USER_ERROR
