"""Pipeline parallelism: each rank holds some layers, and micro-batches pass from rank to rank.

The schedules are those of `torch.distributed.pipelining`: GPipe (Huang et al., arXiv:1811.06965),
1F1B and its interleaved form (Narayanan et al., arXiv:2104.04473), zero bubble and ZBV (Qi et al.,
arXiv:2401.10241).
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, schedules
from torch.utils._pytree import tree_map

from trainhall.parallelism import tensor
from trainhall.parallelism.declaration import Declaration
from trainhall.parallelism.degrees import (
    SPLIT,
    STAGES_PER_RANK,
    DegreesError,
    Schedule,
    expected_bubble,
)
from trainhall.parallelism.mesh import Mesh
from trainhall.parallelism.parts import Divided, Part, average, gathered, zero_like
from trainhall.parallelism.pipelining.batches import draws_of_its_own, pieces
from trainhall.parallelism.pipelining.stages import (
    Layers,
    Relay,
    cut,
    inputs_of,
    keep_only,
    loss_given,
    owners_of,
)
from trainhall.parallelism.pipelining.transit import Transit
from trainhall.parallelism.strategy import Loss, Tools, share_weights
from trainhall.parallelism.waiting import Waits

SCHEDULES: dict[Schedule, type[Any]] = {
    "gpipe": schedules.ScheduleGPipe,
    "1f1b": schedules.Schedule1F1B,
    "interleaved_1f1b": schedules.ScheduleInterleaved1F1B,
    "interleaved_zero_bubble": schedules.ScheduleInterleavedZeroBubble,
    "zbv": schedules.ScheduleZBVZeroBubble,
}


class Pipeline(Divided):
    """A model whose layers are divided among ranks, in `data` copies.

    Each layer may in turn be computed by `tensor` ranks together.
    """

    tools: Tools
    """The tools of the present step."""

    def __init__(
        self,
        model: nn.Module,
        declaration: Declaration,
        mesh: Mesh,
        device: torch.device,
        *,
        schedule: Schedule,
        microbatches: int,
        sequence_parallel: bool,
    ) -> None:
        """Cut the model into stages.

        Args:
            model: on the device, with equal shapes on all ranks; rank 0's weights win.
            microbatches: into which a batch is cut, each on its way through the ranks.
            sequence_parallel: of `tensor.divide`.
        """
        share_weights(model)
        if mesh.degrees.tensor > 1:
            tensor.divide(model, declaration, mesh, sequence_parallel=sequence_parallel)
        self.waits = Waits()
        self._copies, self._group = mesh.group("data"), mesh.group("pipeline")
        self._size, self._place = mesh.degrees.pipeline, mesh.place("pipeline")
        self._microbatches = microbatches
        self._round = 0
        number = self._size * STAGES_PER_RANK[schedule]
        owners = owners_of(number, self._size, schedule)
        stages = cut(model, declaration, number)
        trained = {id(p): name for name, p in model.named_parameters() if p.requires_grad}
        users = _users(stages, owners, model)
        self.degrees, self.samples, self._part = mesh.degrees, mesh.samples, mesh.samples
        self.stream = self.samples * self._size + self._place
        mine = {
            s: Layers(model, stages[s]) for s, owner in enumerate(owners) if owner == self._place
        }
        self.zero = zero_like(model)
        keep_only(model, [name for s in mine for name in stages[s]])
        self.model = self.called = model
        self._relay = Relay(model, mine, owners, self._group, device)
        copies = mesh.degrees.data * mesh.degrees.tensor
        self._parts = _parts(model, trained, users, copies)
        self.parameters = {name: part.memory for name, part in self._parts.items()}
        self._tied = self._join_tied(users, trained, mesh)
        self._layers = list(mine.values())
        self.expected_bubble = expected_bubble(self._size, microbatches)
        # With one micro-batch a rank that has sent it has nothing to compute before the next comes.
        # With several it computes meanwhile.
        self.reports_sending = microbatches == 1 or device.type == "cpu"
        self.transit = Transit() if microbatches > 1 and device.type == "cpu" else None
        self._first, self._last = 0 in mine, number - 1 in mine
        self._schedule = self._built(schedule, mine, number, device)

    def _built(
        self, schedule: Schedule, mine: dict[int, Layers], number: int, device: torch.device
    ) -> Any:
        """Return torch's schedule of this rank's stages."""
        stages = []
        for stage, layers in mine.items():
            # The half of a backward pass that computes the gradient of a stage's input also finds
            # out what the other half needs for the weights: torch leaves these out without it.
            layers.asks_gradient = schedule in SPLIT and stage < number - 1
            stages.append(_Stage(self, layers, stage, number, device, self._group))
        single = STAGES_PER_RANK[schedule] == 1
        return SCHEDULES[schedule](
            stages[0] if single else stages,
            self._microbatches,
            loss_fn=self._loss,
            scale_grads=False,
        )

    def _join_tied(
        self, users: dict[int, list[int]], trained: dict[int, str], mesh: Mesh
    ) -> list[tuple[str, dist.ProcessGroup]]:
        """Return trained weights shared by several ranks of a pipeline, with their group.

        A collective.
        """
        tied = []
        order = list(mesh.degrees.sizes)
        columns = mesh.devices.mesh.movedim(order.index("pipeline"), -1).reshape(-1, self._size)
        for identity, places in users.items():
            if len(places) == 1 or identity not in trained:
                continue
            for column in columns.tolist():
                ranks = [column[place] for place in places]
                group = dist.new_group(ranks)
                if dist.get_rank() in ranks:
                    tied.append((trained[identity], group))
        return tied

    def gradients(
        self, batches: Iterable[Any], loss_of: Loss, tools: Tools, *, rounds: int
    ) -> list[Tensor]:
        if self.transit is not None:
            self.transit.begin(tools)
        return super().gradients(batches, loss_of, tools, rounds=rounds)

    def backward(
        self, batch: Any, loss_of: Loss, tools: Tools, *, rounds: int, last: bool
    ) -> list[Tensor]:
        """Run as `Strategy.backward`; the schedule decides what is computed when.

        The time between two pieces of work, waiting for other ranks included, is communication.
        """
        self.waits.tools = self.tools = tools
        for layers in self._layers:
            layers.autocast = tools.autocast
        self._loss_of, self._rounds = loss_of, rounds
        self._first_piece = (self._part * rounds + self._round) * self._microbatches
        self._round = 0 if last else self._round + 1
        self._batches = []
        if self._first or self._last:
            self._batches = pieces(batch, self._microbatches, "parallelism.microbatches")
        self._measured: dict[int, list[Tensor]] = {}
        inputs = self._inputs() if self._first else ()
        options = {"target": torch.arange(self._microbatches)} if self._last else {}
        if not self._last:
            tools.scale(torch.zeros((), device=self._relay.device))  # a scaler begins with a loss
        # `_loss` has made of the outputs all that is asked for.
        self._schedule.step(*inputs, **options, return_outputs=False)
        if last:
            self.average_gradients()
        tools.communication_ended()
        if not self._last:
            return [torch.zeros((), device=self._relay.device)] * (1 + tools.measures)
        # The job's is the mean over all ranks, of which one in a pipeline knows it.
        share = self._size / self._microbatches
        rows = zip(*self._measured.values(), strict=True)
        return [torch.stack(values).sum() * share for values in rows]

    def _inputs(self) -> tuple[Any, ...]:
        """Return the model's inputs of all micro-batches.

        It is asked of each alone, as `_loss` asks: so what it makes of a batch on its way to
        the model is the same at both ends of the pipeline.
        """
        seen = []
        for index, batch in enumerate(self._batches):
            with self._asking(index):
                seen.append(inputs_of(self._loss_of, batch, training=self.model.training))
        return seen[0] if len(seen) == 1 else tree_map(_joined, *seen)

    @contextmanager
    def _asking(self, index: int) -> Iterator[None]:
        """Seed the loss of a micro-batch within it: the rank at the other end calls the same one,
        and a schedule may call it twice."""
        with draws_of_its_own(self._relay.device), self.tools.autocast():
            self.tools.shard_begins(self._first_piece + index)
            yield

    def _loss(self, output: Any, index: Tensor) -> Tensor:
        with self._asking(int(index)):
            batch = self._batches[int(index)]
            loss, measures = loss_given(self._loss_of, output, batch, training=self.model.training)
        # The first time a schedule asks twice: once for the shapes, with numbers that mean nothing.
        self._measured[int(index)] = [value.detach() for value in (loss, *measures)]
        return self.tools.scale(loss / (self._microbatches * self._rounds))

    def average_gradients(self) -> None:
        super().average_gradients()
        for name, group in self._tied:
            dist.all_reduce(self.parameters[name].grad, group=group)
        if self.degrees.data > 1:
            memories = self.parameters.values()
            average([m.grad for m in memories if m.grad is not None], self._copies)

    def share_buffers(self) -> None:
        for buffer in self.model.buffers():
            dist.broadcast(buffer, group_src=0, group=self._copies)

    @property
    def evaluated(self) -> nn.Module:
        return self._relay

    def whole(self, parts: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        return gathered(parts, self._group, self._relay.device)


class _Stage(PipelineStage):
    """Reports work and waiting to the clock."""

    def __init__(
        self,
        strategy: Pipeline,
        layers: Layers,
        index: int,
        number: int,
        device: torch.device,
        group: dist.ProcessGroup,
    ) -> None:
        super().__init__(layers, index, number, device, group=group)
        self._strategy = strategy
        self._layers = layers

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        return self._watched(super().get_fwd_send_ops(fwd_chunk_id))

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        return self._watched(super().get_bwd_send_ops(bwd_chunk_id))

    def _watched(self, sends: list[dist.P2POp]) -> list[dist.P2POp]:
        transit = self._strategy.transit
        return sends if transit is None else transit.watch(sends)

    def forward_one_chunk(self, *args: Any, **options: Any) -> Any:
        self._strategy.tools.communication_ended()
        self._layers.trains = True
        output = super().forward_one_chunk(*args, **options)
        self._layers.trains = False
        self._strategy.tools.forward_ended()
        return output

    def backward_one_chunk(self, *args: Any, **options: Any) -> None:
        self._strategy.tools.communication_ended()
        super().backward_one_chunk(*args, **options)
        self._strategy.tools.backward_ended()

    def backward_weight_one_chunk(self, *args: Any, **options: Any) -> None:
        self._strategy.tools.communication_ended()
        super().backward_weight_one_chunk(*args, **options)
        self._strategy.tools.backward_ended()
        # What is put off to here torch adds to gradients by hand, which calls no hook of theirs.
        listener = self._strategy.accumulated
        if listener is not None:
            for parameter in reversed(list(self._layers.parameters())):
                if parameter.grad is not None:
                    listener(parameter)


def _joined(*parts: Any) -> Any:
    """Join the micro-batches' values at one place of the model's input.

    Raises:
        DegreesError: they differ in shape, and a schedule cuts what is joined into equal pieces.
    """
    first = parts[0]
    if not (isinstance(first, Tensor) and first.dim()):
        return first
    if any(part.shape != first.shape for part in parts):
        shapes = ", ".join(str(list(part.shape)) for part in parts)
        raise DegreesError(
            "pipeline",
            f"the loss gives the model micro-batches of different shapes, {shapes}, but a "
            "pipeline needs equal ones: keep every sample in the loss (with weight 0 where "
            "it does not count), or choose another strategy",
        )
    return torch.cat(parts)


def _parts(
    model: nn.Module, trained: dict[int, str], users: dict[int, list[int]], copies: int
) -> dict[str, Part]:
    """Return this rank's trained weights by name; `copies` are of each stage."""
    return {
        trained[id(p)]: Part(p, holders=copies * len(users[id(p)]))
        for p in model.parameters()
        if p.requires_grad
    }


def _users(stages: list[list[str]], owners: list[int], model: nn.Module) -> dict[int, list[int]]:
    """Return, by parameter, the ranks of a pipeline that use it."""
    users: dict[int, list[int]] = {}
    for stage, owner in zip(stages, owners, strict=True):
        for name in stage:
            for parameter in model.get_submodule(name).parameters():
                places = users.setdefault(id(parameter), [])
                if owner not in places:
                    places.append(owner)
    return users
