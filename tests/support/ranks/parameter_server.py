"""Ranks of a parameter server's job that end, or say something else than they should."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from trainhall.distributed import process_group
from trainhall.distributed.environment import RankEnvironment
from trainhall.parallelism.messages import Content, Packet, WrongMessageError
from trainhall.parallelism.parameter_server import Server, Worker
from trainhall.training import rank


def lost_step(path: Path) -> int:
    """Rank 0 sends three messages; rank 1 writes down what it makes of them."""

    environment = RankEnvironment.read(os.environ)
    with process_group.joined(environment, device=torch.device("cpu"), namespace="test"):
        packet = Packet([torch.tensor([1.0, 2.0]), torch.tensor([3])])
        if environment.rank == 0:
            packet.tensors[1].fill_(7)
            packet.send(Content.GRADIENTS, 5, [1])
            packet.send(Content.GRADIENTS, 4, [1])
            packet.send(Content.WEIGHTS, 5, [1])
            return 0
        packet.receive(Content.GRADIENTS, 5, 0)
        lines = [f"{packet.tensors[1].item()}"]
        for _ in range(2):
            try:
                packet.receive(Content.GRADIENTS, 5, 0)
            except WrongMessageError as error:
                lines.append(str(error))
        (path / "messages.txt").write_text("\n".join(lines))
    return 0


def _dying(kind: type[Any], method: str, number: int) -> int:
    original: Callable[..., Any] = getattr(kind, method)

    def dies(self: Any, *args: Any, **options: Any) -> Any:
        if self.step == 1 and os.environ["RANK"] == str(number):
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, *args, **options)

    setattr(kind, method, dies)
    return rank.main()


def dead_worker(path: Path) -> int:
    """Rank 1 is killed before it sends the gradients of step 2."""
    return _dying(Worker, "average_gradients", 1)


def dead_server(path: Path) -> int:
    """Rank 2 is killed before it takes the gradients of step 2."""
    return _dying(Server, "backward", 2)
