"""What the ranks of the Gloo tests do: one of them dies between two collectives."""

import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist

from trainhall.distributed.collectives.algorithms import all_reduce
from trainhall.distributed.collectives.communicator import Communicator
from trainhall.distributed.collectives.errors import CollectiveError
from trainhall.distributed.environment import RankEnvironment
from trainhall.distributed.gloo import Gloo
from trainhall.distributed.process_group import cpu_group

DIES = 1
TIMEOUT = 60.0


def lose_one(folder: Path) -> int:
    """Every survivor writes down what it was told."""
    torch.set_num_threads(1)
    environment = RankEnvironment.read(os.environ)
    store = dist.TCPStore(environment.master_addr, environment.master_port)
    dist.init_process_group(
        "gloo", store=store, rank=environment.rank, world_size=environment.world_size
    )
    communicator = Communicator(Gloo(cpu_group()), timeout=TIMEOUT)
    schedule = all_reduce("ring", environment.world_size)
    tensor = torch.ones(1000)
    communicator.run(schedule, tensor)
    assert tensor.eq(environment.world_size).all()
    if environment.rank == DIES:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        communicator.run(schedule, tensor)
    except CollectiveError as error:
        told = f"{type(error).__name__}: {error}"
        (folder / f"{environment.rank}.txt").write_text(told, encoding="utf-8")
    return 0
