"""One step of a worker and of a server of `parameter_server`, on tensors without memory.

Messages are left out, but not the memory that holds them.
"""

import torch
from torch import Tensor, nn

from trainhall.parallelism.messages import Packet
from trainhall.parallelism.parameter_server import deal, free_others
from trainhall.parallelism.plan.copies import SingleRank


class Pushing(SingleRank):
    """A worker: it updates nothing, and sends its gradients to the servers."""

    def __init__(self, model: nn.Module, servers: int) -> None:
        super().__init__(model)
        self._trained, self.parameters = self.parameters, {}
        shares = deal(self._trained, servers)

        packets = [Packet([self._trained[n].detach() for n in share]) for share in shares]
        self.messages = [tensor for packet in packets for tensor in packet.tensors]

    def clip(self, largest: float | None) -> Tensor:
        return torch.zeros(())


class Serving(SingleRank):
    """The server that holds the most parameters; gradients stay where they were added up."""

    def __init__(self, model: nn.Module, servers: int) -> None:
        super().__init__(model)
        names = max(
            deal(self.parameters, servers), key=lambda s: sum(self.parameters[n].nbytes for n in s)
        )
        self.parameters = {name: self.parameters[name] for name in names}
        free_others(model, list(self.parameters.values()))
        weights = [p.detach() for p in self.parameters.values()]
        self._sum, self._message = Packet(weights), Packet(weights)
        self.messages = [*self._sum.tensors, *self._message.tensors]
        self.take_gradients()

    def take_gradients(self) -> None:
        """Set gradients as if all workers had sent theirs."""
        for parameter, gradient in zip(self.parameters.values(), self._sum.tensors, strict=True):
            parameter.grad = gradient
