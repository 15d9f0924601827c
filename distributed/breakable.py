"""Collectives that end when their process group is abandoned, whatever becomes of their messages.

Gloo can lose a message that it was about to send when the receiver was gone: a rank that waits for
it is not notified, and closing the connections does not help either, until its timeout (half an
hour). A process that continues in other groups (`broken`) must not be blocked by one that it
leaves. So its threads wait here, poll now and then, and leave unfinished work to Gloo's own
threads.

Nothing of a group writes into memory any more once its connections are closed, so the tensors of an
abandoned collective may be used again from then on.
"""

import pickle
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

LOOK_SECONDS = 0.25
"""Between two checks of a waiting thread whether its group is broken off."""
_LOOK = timedelta(seconds=LOOK_SECONDS)
_PACKET_BYTES = 1 << 22
"""Bytes of tensors that are copied to go as one message, which pays while they are small."""


class GroupBrokenError(RuntimeError):
    """The group of ranks was broken off while others were waited for."""

    def __init__(self) -> None:
        super().__init__("the process group was aborted while waiting for other ranks")


class GroupHandle:
    """The groups that this process is in together, until they are broken off."""

    broken_off = False
    abandoned_work = False
    """Something that did not end was left to Gloo."""

    def abandon_work(self) -> GroupBrokenError:
        """Leave to Gloo what a thread waits for; return the error to raise there."""
        self.abandoned_work = True
        return GroupBrokenError()


_present = GroupHandle()


def begin() -> None:
    """Begin new groups; threads that still wait in a former one notice it."""
    global _present
    _present = GroupHandle()


def break_off() -> None:
    """End all waiting for the present groups, in every thread; their connections close next."""
    _present.broken_off = True


def present() -> GroupHandle:
    """Return the present groups, by which a waiting thread knows whether to keep waiting."""
    return _present


def wait(work: dist.Work) -> None:
    """Return when a collective between tensors in host memory is done.

    Raises:
        GroupBrokenError: it is not, and need not be any more.
        RuntimeError: it failed.
    """
    handle = _present
    while True:
        try:
            work.wait(_LOOK)
            return
        except RuntimeError:
            if work.is_completed():
                break
        if handle.broken_off:
            raise handle.abandon_work()
    work.wait()  # it may have ended just now; else this says why it failed


def all_reduce(
    tensor: Tensor,
    op: Any = dist.ReduceOp.SUM,  # its stub has no type for the members
    group: dist.ProcessGroup | None = None,
) -> None:
    """Replace `tensor` by its sum, or whatever `op` says, over the ranks."""
    _end(dist.all_reduce(tensor, op, group=group, async_op=True), tensor)


def broadcast(
    tensors: Sequence[Tensor], source: int, moved: Callable[[], None] = lambda: None
) -> None:
    """Replace tensors by those of rank `source`, over the default group, small ones together.

    Args:
        moved: called after each message.
    """
    for packet in _packets([tensor.detach() for tensor in tensors]):
        flat = packet[0] if len(packet) == 1 else torch.cat([t.reshape(-1) for t in packet])
        _end(dist.broadcast(flat, src=source, async_op=True), flat)
        if len(packet) > 1 and dist.get_rank() != source:
            parts = flat.split([tensor.numel() for tensor in packet])
            whole = [part.view_as(t) for part, t in zip(parts, packet, strict=True)]
            torch._foreach_copy_(packet, whole)
        moved()


def all_gather(result: Tensor, mine: Tensor, group: dist.ProcessGroup | None = None) -> None:
    """Fill `result` [ranks × elements] with every rank's `mine` [elements], in order of ranks."""
    # `all_gather_into_tensor` is deprecated as of torch 2.13, which has it under this name.
    gather_ = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    _end(gather_(result, mine, group=group, async_op=True), mine)


def all_to_all(result: Tensor, mine: Tensor, *, come: Sequence[int], go: Sequence[int]) -> None:
    """Exchange parts of one-dimensional tensors over the default group.

    Args:
        come: elements of `result` from each rank.
        go: elements of `mine` to each rank.
    """
    work = dist.all_to_all_single(
        result, mine, output_split_sizes=list(come), input_split_sizes=list(go), async_op=True
    )
    _end(work, mine)


def gather(mine: Tensor, all_of_them: list[Tensor] | None, group: dist.ProcessGroup | None) -> None:
    """Fill `all_of_them`, on rank 0 alone, with every rank's `mine`."""
    _end(dist.gather(mine, all_of_them, group=group, async_op=True), mine)


def barrier(group: dist.ProcessGroup) -> None:
    """Wait until all ranks of a group in host memory have come here."""
    work = dist.barrier(group=group, async_op=True)
    if work is not None:
        wait(work)


def gather_objects(value: Any, group: dist.ProcessGroup) -> list[Any]:
    """Gather every rank's plain value, in order of ranks; they are pickled."""
    device = _device(group)
    mine = _pickled(value, device)
    sizes = torch.empty(group.size(), dtype=torch.long, device=device)
    all_gather(sizes, sizes.new_tensor([len(mine)]), group)
    most = int(sizes.max())
    rows = mine.new_empty(group.size(), most)
    all_gather(rows.view(-1), torch.nn.functional.pad(mine, (0, most - len(mine))), group)
    return [_unpickled(row[:size]) for row, size in zip(rows, sizes.tolist(), strict=True)]


def broadcast_object(value: Any, source: int, group: dist.ProcessGroup) -> Any:
    """Broadcast the plain value of rank `source` of a group; it is pickled."""
    sends, device = group.rank() == source, _device(group)
    data = _pickled(value if sends else None, device)
    size = torch.tensor([len(data)], device=device)
    _end(dist.broadcast(size, group_src=source, group=group, async_op=True), size)
    if not sends:
        data = data.new_empty(int(size))
    _end(dist.broadcast(data, group_src=source, group=group, async_op=True), data)
    return value if sends else _unpickled(data)


def _packets(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """Group tensors of one type into a message, in the same order on all ranks."""
    packets: list[list[Tensor]] = []
    filling: dict[tuple[torch.dtype, torch.device], tuple[list[Tensor], int]] = {}
    for tensor in tensors:
        kind, size = (tensor.dtype, tensor.device), tensor.numel() * tensor.element_size()
        packet, filled = filling.get(kind, ([], _PACKET_BYTES))
        if filled + size > _PACKET_BYTES:
            packet, filled = [], 0
            packets.append(packet)
        packet.append(tensor)
        filling[kind] = packet, filled + size
    return packets


def _end(work: dist.Work | None, tensor: Tensor) -> None:
    if work is None:
        return
    if tensor.is_cuda:
        work.wait()  # of the stream, not of this thread; a timeout would make it wait
    else:
        wait(work)


def _device(group: dist.ProcessGroup) -> torch.device:
    """Return the device of tensors that a group carries: in host memory, if it can."""
    cpu = torch.device("cpu")
    known: list[torch.device] = group._device_types
    return cpu if cpu in known else known[0]


def _pickled(value: Any, device: torch.device) -> Tensor:
    return torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8).to(device)


def _unpickled(data: Tensor) -> Any:
    return pickle.loads(data.cpu().numpy().tobytes())
