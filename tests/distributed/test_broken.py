"""Which errors mean that another rank is gone, by the words of NCCL 2.27."""

import pytest
import torch.distributed as dist

from trainhall.distributed.broken import is_broken
from trainhall.training.out_of_memory import is_out_of_memory

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
def test_an_error_of_its_own_is_not_waited_out(text: str) -> None:
    assert not is_broken(dist.DistBackendError(text))


@pytest.mark.parametrize("text", OTHERS)
def test_a_lost_rank_is(text: str) -> None:
    assert is_broken(dist.DistBackendError(text))


def test_memory_that_cuda_or_nccl_lacks_is_told_as_such() -> None:
    assert is_out_of_memory(dist.DistBackendError(OWN[2]))
    assert is_out_of_memory(RuntimeError("CUDA error: out of memory"))
    assert not is_out_of_memory(dist.DistBackendError(OWN[1]))
