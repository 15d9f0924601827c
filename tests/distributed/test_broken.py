"""The errors that mean that another rank is gone, with messages of NCCL 2.27."""

import pytest
import torch.distributed as dist

from trainhall.cluster.agent.shim.failure_cause import RankExit, classify_failure
from trainhall.distributed.broken import is_broken, message_of
from trainhall.training.link.failure import Cause
from trainhall.training.loop.oom_report import is_out_of_memory

OWN = (
    "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device "
    "error.\nLast error:\nError while creating shared memory segment /dev/shm/nccl-cgvHYH (size "
    "9637888)",
    "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\n"
    "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1b000",
    "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
    "Cuda failure 2 'out of memory'",
)  # fmt: skip
OTHERS = (
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting "
    "prematurely.\nLast error:\nsocketProgress: Connection closed by remote peer",
    "NCCL communicator was aborted on rank 0.",
)


@pytest.mark.parametrize("text", OWN)
def test_own_error_is_raised_immediately(text: str) -> None:
    assert not is_broken(dist.DistBackendError(text))


@pytest.mark.parametrize("text", OTHERS)
def test_lost_rank_breaks_the_group(text: str) -> None:
    assert is_broken(dist.DistBackendError(text))


@pytest.mark.parametrize(
    ("text", "expected", "cause"),
    [
        (
            "[/__w/pytorch/gloo/transport/tcp/pair.cc:553] Connection closed by peer [::1]:8089. "
            "This is typically caused by a remote worker crashing. GLHF! 🏖️",
            "lost its connection to another rank (Gloo: Connection closed by peer [::1]:8089)",
            Cause.NETWORK,
        ),
        (
            "[/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 2000ms for recv operation"
            " to complete",
            "timed out waiting for another rank (Gloo: Timed out waiting 2000ms for recv operation "
            "to complete)",
            Cause.HANG,
        ),
        (
            "Application timeout caused pair closure",
            "lost its connection to another rank (Gloo: Application timeout caused pair closure)",
            Cause.NETWORK,
        ),
    ],
)
def test_gloo_errors_are_described(text: str, expected: str, cause: Cause) -> None:
    message = message_of(RuntimeError(text))
    assert message == f"this rank {expected}"
    assert (
        classify_failure(RankExit(words=f"rank 0: RuntimeError: {message}", exit_code=1)).cause
        is cause
    )


@pytest.mark.parametrize(
    "text",
    [
        "[enforce fail at ../gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find "
        "interface for: eth7",
        "[enforce fail at ../gloo/transport/tcp/pair.cc:446] op.preamble.length <= op.nbytes. 8192 "
        "vs 4096",
    ],
)
def test_unrelated_errors_keep_their_message(text: str) -> None:
    assert message_of(RuntimeError(text)) is None


@pytest.mark.parametrize("text", OTHERS)
def test_other_errors_are_unchanged(text: str) -> None:
    assert message_of(dist.DistBackendError(text)) == text


def test_out_of_memory_errors_are_recognised() -> None:
    assert is_out_of_memory(dist.DistBackendError(OWN[2]))
    assert is_out_of_memory(RuntimeError("CUDA error: out of memory"))
    assert not is_out_of_memory(dist.DistBackendError(OWN[1]))
