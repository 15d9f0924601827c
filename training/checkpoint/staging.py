"""The copy of a state to host memory: the only part of a save for which training waits."""

import contextlib
import ctypes
import mmap
import weakref
from collections.abc import Sequence

import torch
from torch import Tensor

from trainhall.training.event_log import EventLogger

# Cache lines, and every element size.
_ALIGNMENT = 64
_PORTABLE = 1
"""`cudaHostRegisterPortable`: for all GPUs."""

log = EventLogger(__name__)


class Staging:
    """One block of host memory that takes the same tensors again and again.

    It is laid out and faulted in once; as long as shapes and dtypes stay, a copy is one pass of
    memory and nothing else. Beside a GPU the block is page-locked, so that the copies overlap,
    unless the host does not let as much be locked.
    """

    def __init__(self) -> None:
        self._layout: list[tuple[torch.Size, torch.dtype]] = []
        self._copies: list[Tensor] = []
        self._addresses: list[int] = []
        self._asked_pinned = False
        self._unlock: weakref.finalize[[int], Staging] | None = None
        """The finalizer that unlocks the block's pages; None: they are not locked."""

    def reserve(self, tensors: Sequence[Tensor], *, pinned: bool) -> None:
        """Lay the block out for tensors of these shapes and dtypes, unless it is."""
        layout = [(t.shape, t.dtype) for t in tensors]
        if layout == self._layout and pinned == self._asked_pinned:
            return
        if self._unlock is not None:
            self._unlock()
        self._layout, self._copies = [], []  # The old block goes before the new one comes.
        starts, size = [], 0
        for tensor in tensors:
            starts.append(size)
            size += -(-tensor.numel() * tensor.element_size() // _ALIGNMENT) * _ALIGNMENT
        # Whole pages, for the lock; written to, so that they are faulted in.
        block = torch.frombuffer(mmap.mmap(-1, max(size, 1)), dtype=torch.uint8).zero_()
        self._unlock = None
        if pinned and size > 0 and _lock_pages(block):
            # Of this object and not of the memory, which would be gone before.
            unlock = torch.cuda.cudart().cudaHostUnregister
            self._unlock = weakref.finalize(self, unlock, block.data_ptr())
        self._copies = [
            block[start : start + tensor.numel() * tensor.element_size()]
            .view(tensor.dtype)
            .view(tensor.shape)
            for start, tensor in zip(starts, tensors, strict=True)
        ]
        self._addresses = [copy.data_ptr() for copy in self._copies]
        self._layout, self._asked_pinned = layout, pinned

    def copy(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Copy tensors to the reserved block of host memory.

        The copies are contiguous, and valid until the next call.
        """
        for copy, address, tensor in zip(self._copies, self._addresses, tensors, strict=True):
            if _is_plain_memory(tensor):
                # One thread fills the memory bus. `copy_` would share the work of every tensor out
                # among threads, and where cores are busy each of these meetings costs a time slice.
                ctypes.memmove(address, tensor.data_ptr(), tensor.nbytes)
            else:
                copy.copy_(tensor, non_blocking=self._unlock is not None)
        if self._unlock is not None:
            for device in {tensor.device for tensor in tensors if tensor.device.type == "cuda"}:
                torch.cuda.synchronize(device)
        return self._copies


def _is_plain_memory(tensor: Tensor) -> bool:
    """Return whether its bytes lie in host memory as they are to be written."""
    return (
        tensor.device.type == "cpu"
        and tensor.is_contiguous()
        and not tensor.is_conj()
        and not tensor.is_neg()
    )


def _lock_pages(block: Tensor) -> bool:
    """Lock a block's pages; return False if the host does not allow so many.

    Torch's own pinned memory comes in powers of two: 84 GB would take 128 GiB.
    """
    failed = int(torch.cuda.cudart().cudaHostRegister(block.data_ptr(), block.nbytes, _PORTABLE))
    if failed == 0:
        return True
    # Checkpoints are copied there more slowly.
    log.warning("memory_not_page_locked", gib=round(block.nbytes / 2**30, 1))
    # CUDA would report the failure once more, of whatever is launched next.
    with contextlib.suppress(RuntimeError):
        torch.ones(1, device="cuda")
    return False
