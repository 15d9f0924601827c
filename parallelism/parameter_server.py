"""Parameter servers: some ranks hold weights and optimizer, the others compute gradients.

Every step each worker pushes its gradients to the servers, which average them, take the optimizer's
step and send the new weights back (Li et al., "Scaling Distributed Machine Learning with the
Parameter Server", OSDI 2014), here without any staleness. Each parameter lies whole on one server.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainhall.parallelism.degrees import Degrees, DegreesError
from trainhall.parallelism.messages import Content, Packet
from trainhall.parallelism.parts import gathered, no_gradient
from trainhall.parallelism.strategy import Loss, Strategy, Tools, clip_gradients, share_weights
from trainhall.parallelism.waiting import Waits


def join(model: nn.Module, degrees: Degrees, device: torch.device) -> Strategy:
    """Return this rank's role: workers first, so that rank 0 is one, servers last. A collective.

    Args:
        model: on the device, with equal shapes on all ranks; rank 0's weights win.

    Raises:
        DegreesError: there are fewer trained parameters than servers.
    """
    share_weights(model)
    workers, rank = degrees.data, dist.get_rank()
    group = dist.new_group(list(range(workers)))
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    shares = deal(parameters, degrees.servers)
    if rank < workers:
        return Worker(model, degrees, device, shares, group)
    return Server(model, degrees, device, shares[rank - workers])


def deal(parameters: dict[str, nn.Parameter], servers: int) -> list[list[str]]:
    """Return each server's parameter names: the largest first, to the least loaded.

    Raises:
        DegreesError: a server would have none.
    """
    if len(parameters) < servers:
        raise DegreesError(
            "servers",
            f"the model's {len(parameters)} parameters are too few for {servers} servers; "
            f"give at most {len(parameters)}",
        )
    shares: list[list[str]] = [[] for _ in range(servers)]
    sizes = [0] * servers
    for name in sorted(parameters, key=lambda name: (-parameters[name].nbytes, name)):
        least = min(range(servers), key=lambda server: (sizes[server], len(shares[server])))
        shares[least].append(name)
        sizes[least] += parameters[name].nbytes
    return shares


class _Role(Strategy):
    """The base of workers and servers."""

    replicated = False
    reports_sending = True
    """A rank waits for all that it sends before it does anything else."""

    def __init__(self, model: nn.Module, degrees: Degrees, device: torch.device) -> None:
        self.degrees = degrees
        self.stream = dist.get_rank()
        self.model = self.called = model
        self.waits = Waits()
        self._device = device

    def copies(self, name: str) -> int:
        return 1

    def _norm(self, gradients: list[Tensor]) -> Tensor:
        """Return the L2 norm of the gradients of all servers; workers give none."""
        total = torch.zeros((), dtype=torch.float64, device=self._device)
        for norm in torch._foreach_norm(gradients) if gradients else ():
            total += norm.double().square()
        self.waits.begin()
        dist.all_reduce(total)
        self.waits.end()
        return total.sqrt()

    def whole(self, parts: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        assert dist.group.WORLD is not None
        return gathered(parts, dist.group.WORLD, self._device)


class Worker(_Role):
    """Computes gradients with weights that the servers have sent."""

    def __init__(
        self,
        model: nn.Module,
        degrees: Degrees,
        device: torch.device,
        shares: list[list[str]],
        workers: dist.ProcessGroup,
    ) -> None:
        super().__init__(model, degrees, device)
        self.samples = dist.get_rank()
        self.parameters = {}
        self._workers = workers
        named = dict(model.named_parameters())
        self._named = [(name, p) for name, p in named.items() if p.requires_grad]
        self._shares = [[named[name] for name in share] for share in shares]
        self._servers = range(degrees.data, degrees.world_size)
        self._weights = [[p.detach() for p in share] for share in self._shares]
        self._packets = [Packet(weights) for weights in self._weights]

    def backward(
        self, batch: Any, loss_of: Loss, tools: Tools, *, rounds: int, last: bool
    ) -> list[Tensor]:
        self.waits.tools = tools
        means = super().backward(batch, loss_of, tools, rounds=rounds, last=last)
        # The job's is the mean over all ranks, of which the servers give zero.
        share = self.degrees.world_size / self.degrees.data
        return [value * share for value in means]

    def average_gradients(self) -> None:
        """Push the gradients to the servers, which average them.

        Raises:
            NoGradientError: a parameter has no gradient, and there is no way to send none.
        """
        left_out = [name for name, parameter in self._named if parameter.grad is None]
        if left_out:
            raise no_gradient(left_out)
        for server, share, packet in zip(self._servers, self._shares, self._packets, strict=True):
            torch._foreach_copy_(packet.tensors, [p.grad for p in share if p.grad is not None])
            packet.send(Content.GRADIENTS, self.step + 1, [server])

    def clip(self, largest: float | None) -> Tensor:
        return self._norm([])

    def finish_step(self, tools: Tools) -> None:
        """Pull the new weights."""
        self.step += 1
        for server, held, packet in zip(self._servers, self._weights, self._packets, strict=True):
            packet.receive(Content.WEIGHTS, self.step, server)
            torch._foreach_copy_(held, packet.tensors)
        tools.communication_ended()

    def share_buffers(self) -> None:
        for buffer in self.model.buffers():
            dist.broadcast(buffer, src=0, group=self._workers)


class Server(_Role):
    """Holds some of the parameters, and the optimizer's state of them."""

    samples = None

    def __init__(
        self, model: nn.Module, degrees: Degrees, device: torch.device, names: list[str]
    ) -> None:
        super().__init__(model, degrees, device)
        named = dict(model.named_parameters())
        self.parameters = {name: named[name] for name in names}
        free_others(model, list(self.parameters.values()))
        weights = [p.detach() for p in self.parameters.values()]
        self._sum, self._message = Packet(weights), Packet(weights)

    def backward(
        self, batch: Any, loss_of: Loss, tools: Tools, *, rounds: int, last: bool
    ) -> list[Tensor]:
        """Take the workers' gradients, in the order of ranks, so that sums round alike."""
        self.waits.tools = tools
        zero = torch.zeros((), device=self._device)
        tools.scale(zero)  # a scaler begins with a loss
        if last:
            for worker in range(self.degrees.data):
                packet = self._message if worker else self._sum
                packet.receive(Content.GRADIENTS, self.step + 1, worker)
                if worker:
                    torch._foreach_add_(self._sum.tensors, packet.tensors)
            torch._foreach_div_(self._sum.tensors, self.degrees.data)
            for parameter, gradient in zip(
                self.parameters.values(), self._sum.tensors, strict=True
            ):
                parameter.grad = gradient
            tools.communication_ended()
        return [zero] * (1 + tools.measures)

    def clip(self, largest: float | None) -> Tensor:
        norm = self._norm(self._sum.tensors)
        clip_gradients(list(self.parameters.values()), largest, norm)
        return norm

    def finish_step(self, tools: Tools) -> None:
        self.step += 1
        torch._foreach_copy_(self._message.tensors, [p.detach() for p in self.parameters.values()])
        self._message.send(Content.WEIGHTS, self.step, range(self.degrees.data))
        tools.communication_ended()

    def share_buffers(self) -> None:
        """Do nothing: servers have no buffers."""


def free_others(model: nn.Module, kept: list[nn.Parameter]) -> None:
    """Free all parameters and buffers of a model but these parameters, whose names stay."""
    identities = {id(parameter) for parameter in kept}
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if id(parameter) not in identities:
                module.register_parameter(name, None)
        for name, _ in list(module.named_buffers(recurse=False)):
            module.register_buffer(name, None)
