"""The algorithms by which ranks combine gradients, each in a process group of its own."""

import os
from datetime import timedelta
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from trainhall.distributed import breakable, process_group
from trainhall.distributed.collectives.algorithms.registry import all_reduce
from trainhall.distributed.collectives.algorithms.ring import RingAllGather
from trainhall.distributed.collectives.communicator import Communicator
from trainhall.distributed.collectives.message import check_same_kind
from trainhall.distributed.collectives.schedule import Schedule
from trainhall.distributed.collectives.transport import Transport
from trainhall.distributed.compression.interface import Exchange
from trainhall.distributed.environment import RankEnvironment, ranks_by_host
from trainhall.distributed.gloo import Gloo
from trainhall.distributed.nccl import Nccl

_LAYOUT_BYTES = 48
_WITH_HOSTS = ("hierarchical", "parameter_server")


class OpenExchange(Exchange, Protocol):
    """An exchange whose ranks can see that they bring tensors of one size and type."""

    @property
    def sent_bytes(self) -> int:
        """Return the bytes that this rank has sent so far. Those of the backend's own collectives
        are taken to go around a ring, as in the bus bandwidth of nccl-tests."""

    def agree(self, tensor: Tensor) -> None:
        """Raise CollectiveInputError on every rank, with what each brings, if they differ."""


def open_exchange(
    algorithm: str,
    device: torch.device,
    *,
    servers: int | None = None,
    timeout: timedelta = process_group.COLLECTIVE_TIMEOUT,
) -> OpenExchange:
    """Open this rank's end of an algorithm in the default process group. A collective.

    Args:
        algorithm: `native` for the backend's own collectives, or the name of a schedule.
        device: of the tensors.
        servers: ranks that serve, for `parameter_server`; one per host if left out.

    Raises:
        ScheduleError: the algorithm cannot be laid out for these ranks.
        RankEnvironmentError: the launcher does not say which ranks share a host.
    """
    hosts = gather_hosts() if algorithm in _WITH_HOSTS else None
    backend = "nccl" if device.type == "cuda" else "gloo"
    world_size = dist.get_world_size()
    if algorithm == "native":
        return NativeExchange(process_group.new_group(backend, timeout))
    schedule = all_reduce(algorithm, world_size, hosts=hosts, servers=servers)
    group = process_group.new_group(backend, timeout)
    transport = Nccl(group, device) if device.type == "cuda" else Gloo(group)
    return ScheduledExchange(transport, schedule, timeout=timeout)


def gather_hosts() -> tuple[tuple[int, ...], ...]:
    """Return the ranks of each host, as each rank's launcher reports it. A collective.

    Raises:
        RankEnvironmentError: it reports none, or the reports are inconsistent.
    """
    own = RankEnvironment.read(os.environ)
    place = own.local_rank, own.local_world_size
    return ranks_by_host(breakable.gather_objects(place, process_group.cpu_group()))


def ring_bytes(size: int, world_size: int) -> int:
    """Return the bytes that a rank sends in a ring all-reduce of `size` bytes."""
    return 2 * (world_size - 1) * size // world_size


class ScheduledExchange:
    """One of the schedules in `collectives`."""

    def __init__(self, transport: Transport, schedule: Schedule, *, timeout: timedelta) -> None:
        self.rank = transport.rank
        self.world_size = transport.world_size
        self._communicator = Communicator(transport, timeout=timeout.total_seconds())
        self._schedule = schedule
        self._all_gather = RingAllGather(self.world_size)

    @property
    def sent_bytes(self) -> int:
        return self._communicator.sent_bytes

    def sum(self, tensor: Tensor) -> None:
        self._communicator.run(self._schedule, tensor)

    def gather(self, tensor: Tensor) -> Tensor:
        rows = tensor.new_empty(self.world_size, len(tensor))
        rows[self.rank] = tensor
        self._communicator.run(self._all_gather, rows.view(-1))
        return rows

    def agree(self, tensor: Tensor) -> None:
        self._communicator.agree(tensor)


class NativeExchange:
    """The backend's own collectives: Gloo's or NCCL's."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.rank = group.rank()
        self.world_size = group.size()
        self.sent_bytes = 0
        self._group = group

    def sum(self, tensor: Tensor) -> None:
        breakable.all_reduce(tensor, group=self._group)
        self.sent_bytes += ring_bytes(tensor.nbytes, self.world_size)

    def gather(self, tensor: Tensor) -> Tensor:
        rows = tensor.new_empty(self.world_size, len(tensor))
        breakable.all_gather(rows.view(-1), tensor, group=self._group)
        self.sent_bytes += (self.world_size - 1) * tensor.nbytes
        return rows

    def agree(self, tensor: Tensor) -> None:
        layout = f"{len(tensor)} {tensor.dtype}".encode().ljust(_LAYOUT_BYTES)
        mine = torch.frombuffer(bytearray(layout), dtype=torch.uint8).to(tensor.device)
        rows = [bytes(row).decode().split() for row in self.gather(mine).tolist()]
        check_same_kind([(int(elements), kind) for elements, kind in rows])
