"""What the ranks of the tests of collectives do."""

import os
import signal
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from support.waiting import eventually

from trainhall.distributed.collectives.algorithms.registry import NAMES, all_reduce
from trainhall.distributed.collectives.communicator import Communicator
from trainhall.distributed.collectives.errors import CollectiveError
from trainhall.distributed.collectives.simulate import simulate
from trainhall.distributed.environment import RankEnvironment
from trainhall.distributed.gloo import Gloo
from trainhall.distributed.nccl import Nccl
from trainhall.distributed.process_group import cpu_group
from trainhall.training.process.device import own_gpu

DIES = 1
TIMEOUT = 60.0
"""Seconds; longer than the survivors wait for each other, so what ends them is no timeout."""


def lose_one(folder: Path) -> int:
    """Every survivor writes down its error, and waits until the others have."""
    group = join("gloo")
    communicator = Communicator(Gloo(group), timeout=TIMEOUT)
    schedule = all_reduce("ring", group.size())
    tensor = torch.ones(1000)
    communicator.run(schedule, tensor)
    assert tensor.eq(group.size()).all()
    if group.rank() == DIES:
        os.kill(os.getpid(), signal.SIGKILL)
    write_error(folder, communicator, tensor)
    survivors = [folder / f"{rank}.txt" for rank in range(group.size()) if rank != DIES]
    eventually("all to write their errors", lambda: all(path.exists() for path in survivors))
    return 0


def add_up_on_gpus(folder: Path) -> int:
    """The numbers are those of the simulator, in segments too."""
    transport = nccl()
    arrays = [np.random.default_rng(rank).standard_normal(300) for rank in range(2)]
    for segment_bytes in (100, 1 << 20):
        communicator = Communicator(transport, timeout=TIMEOUT, segment_bytes=segment_bytes)
        for name in NAMES:
            schedule = all_reduce(name, 2)
            tensor = communicator.wrap(arrays[transport.rank].copy())
            communicator.agree(tensor)
            communicator.run(schedule, tensor)
            np.testing.assert_array_equal(
                transport.unwrap(tensor), simulate(schedule, arrays).tensors[0]
            )
    return 0


def stay_silent_on_gpus(folder: Path) -> int:
    """Rank 1 never comes to the second collective."""
    transport = nccl()
    communicator = Communicator(transport, timeout=TIMEOUT)
    tensor = communicator.wrap(np.ones(100))
    communicator.run(all_reduce("ring", 2), tensor)
    if transport.rank == 0:
        impatient = Communicator(transport, timeout=0.5)
        write_error(folder, impatient, tensor)
    else:
        eventually("the other rank to give up", (folder / "0.txt").exists, timeout=TIMEOUT)
    return 0


def nccl() -> Nccl:
    device = own_gpu(RankEnvironment.read(os.environ).local_rank)
    return Nccl(join("nccl"), device)


def join(backend: str) -> dist.ProcessGroup:
    torch.set_num_threads(1)
    environment = RankEnvironment.read(os.environ)
    store = dist.TCPStore(environment.master_addr, environment.master_port)
    dist.init_process_group(
        backend, store=store, rank=environment.rank, world_size=environment.world_size
    )
    return cpu_group()


def write_error(folder: Path, communicator: Communicator, tensor: torch.Tensor) -> None:
    try:
        communicator.run(all_reduce("ring", communicator.world_size), tensor)
    except CollectiveError as error:
        message = f"{type(error).__name__}: {error}"
        (folder / f"{communicator.rank}.txt").write_text(message, encoding="utf-8")
