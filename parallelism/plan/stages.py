"""One step of one rank of a pipeline, on tensors without memory.

The ranks of a pipeline tell each other shapes, which a group that only pretends to have ranks
cannot do. So the rank's layers run here with as many micro-batches under way as its schedule keeps
at once; further ones use the same memory again.
"""

import warnings
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

from trainhall.parallelism import tensor
from trainhall.parallelism.batches import pieces
from trainhall.parallelism.choose import Asked
from trainhall.parallelism.degrees import SPLIT, STAGES_PER_RANK, Schedule
from trainhall.parallelism.layers import recompute
from trainhall.parallelism.mesh import Mesh
from trainhall.parallelism.parts import Divided
from trainhall.parallelism.plan.copies import Alone
from trainhall.parallelism.plan.depth import without
from trainhall.parallelism.plan.trace import (
    LONGER,
    SHORT,
    Trace,
    Tracing,
    copied,
    explained,
    extrapolated,
    name_gradients,
    prepared,
)
from trainhall.parallelism.plan.tracker import Tracker
from trainhall.parallelism.stages import cut, inputs_of, loss_given
from trainhall.parallelism.strategy import Strategy, share_weights

_ROUNDS = 2
"""Backward passes that are taken where all are alike: the first finds no gradients yet."""


Kind = Literal["forward", "backward", "input", "weight"]
"""`input` and `weight` are the two halves of a backward pass that is split."""


@dataclass(frozen=True)
class Pass:
    """A pass of a micro-batch through one of a rank's stages."""

    kind: Kind
    chunk: int
    """Which of the rank's stages."""
    microbatch: int


def warm_up(schedule: Schedule, ranks: int, place: int, microbatches: int) -> int:
    """How many forward passes a rank takes before it alternates them with backward passes."""
    match schedule:
        case "gpipe":
            return microbatches
        case "1f1b":
            return min(microbatches, ranks - place) - 1
        case _:
            behind = ranks - place - 1
            far = behind if schedule in SPLIT else 2 * behind
            return min(2 * microbatches, turn_of(schedule, ranks, microbatches) + far)


def turn_of(schedule: Schedule, ranks: int, microbatches: int) -> int:
    """How many micro-batches a rank takes through a stage before it turns to its next one."""
    if STAGES_PER_RANK[schedule] == 1:
        return microbatches
    return microbatches // (microbatches // ranks)  # the rounds of the interleaved schedules


def passes(schedule: Schedule, ranks: int, place: int, microbatches: int) -> list[Pass]:
    """What a rank does in a step, in its order."""
    if schedule == "zbv":
        return _v(ranks, place, microbatches)
    chunks = range(STAGES_PER_RANK[schedule])
    turn = turn_of(schedule, ranks, microbatches)
    splits = schedule in SPLIT

    def dealt(kind: Kind) -> list[Pass]:
        return [
            Pass(kind, chunk, microbatch)
            for first in range(0, microbatches, turn)
            for chunk in (chunks if kind == "forward" else reversed(chunks))
            for microbatch in range(first, min(first + turn, microbatches))
        ]

    forward, weight = dealt("forward"), dealt("weight") if splits else []
    before = warm_up(schedule, ranks, place, microbatches)
    order = forward[:before]
    for index, backward in enumerate(dealt("input" if splits else "backward")):
        order += forward[before + index : before + index + 1]
        order.append(backward)
        # What fills waiting at the end is put off by as much.
        order += weight[index - place : index - place + 1] if index >= place else []
    return order + weight[len(weight) - place :]


def _v(ranks: int, place: int, microbatches: int) -> list[Pass]:
    """ZBV (Qi et al., arXiv:2401.10241, section 6), as `torch.distributed.pipelining` has it: made
    for at least 2 · ranks − 1 micro-batches, of which those that there are not are left out."""
    number, behind = max(2 * ranks - 1, microbatches), ranks - place
    done: Counter[tuple[Kind, int]] = Counter()
    order: list[Pass] = []

    def take(*steps: tuple[Kind, int], times: int = 1) -> None:
        for _ in range(times):
            for step in steps:
                order.append(Pass(*step, done[step]))
                done[step] += 1

    down: tuple[Kind, int] = ("forward", 0)
    up: tuple[Kind, int] = ("forward", 1)
    take(down, times=2 * behind - 1)
    take(up, down, times=place)
    take(up, ("input", 1), ("weight", 1), times=behind)
    while done[up] < number:
        if done[down] < number:
            take(down)
        take(("input", 0), ("weight", 0), up, ("input", 1), ("weight", 1))
    take(("input", 0), ("input", 1), times=place)
    take(("input", 0), ("weight", 0), times=behind)
    for chunk in (1, 0):
        take(("weight", chunk), times=number - done["weight", chunk])
    return [each for each in order if each.microbatch < microbatches]


def shortened(order: list[Pass], rounds: int) -> list[Pass]:
    """The passes without those in the middle that are as the ones before them: so many backward
    passes, and those of the micro-batches that are under way then."""
    kept, under_way, backward = [], set(), 0
    for each in order:
        key = (each.chunk, each.microbatch)
        if each.kind == "forward" and backward < rounds:
            under_way.add(key)
            kept.append(each)
        elif each.kind != "forward" and key in under_way:
            backward += 1
            kept.append(each)
    return kept


class Stages:
    """The ranks of one pipeline."""

    def __init__(self, tracing: Tracing, asked: Asked) -> None:
        self.tracing, self.asked = tracing, asked
        self.ranks = asked.degrees.pipeline
        with explained():
            self.mesh = tracing.mesh(asked.degrees) if asked.degrees.tensor > 1 else None
        number = self.ranks * STAGES_PER_RANK[asked.schedule]
        declaration = tracing.subject.declaration
        self.stages = cut(tracing.model, declaration, number)
        subject = tracing.subject
        self.size = subject.batch_size // asked.degrees.samples // subject.rounds
        row = tracing.row
        equal = declaration.layers[row.first : row.first + row.length] if row else ()
        self.equal = [name for layer in equal for name in layer]
        self.width = len(equal[0]) if equal else 1
        with tracing.fakes, explained():
            whole = copied(tracing.model)
            self.start = self._start(whole)
            self.forms = self._forms(whole)

    def traces(self) -> list[Trace]:
        """Of the first ranks, which keep the most micro-batches, and of the last, with the loss."""
        places = sorted({0, 1, self.ranks - 1})
        return [self._trace(place) for place in places]

    def _trace(self, place: int) -> Trace:
        if self.mesh is not None and (place == 0 or not self.equal):
            # As in `Tracing.step`: operators that DTensor has not met would count. Of equal layers
            # all ranks have the same.
            self._step(place, [self._shortened(self.stages[s], SHORT) for s in self._mine(place)])
        names = [self.stages[stage] for stage in self._mine(place)]
        lengths = [sum(n in self.equal for n in stage) // self.width for stage in names]
        if not self.equal or max(lengths) <= LONGER:
            return self._step(place, names)
        short, longer = (
            self._step(place, [self._shortened(stage, keep) for stage in names])
            for keep in (SHORT, LONGER)
        )
        return extrapolated(short, longer, SHORT, LONGER, sum(lengths) / len(lengths))

    def _shortened(self, names: list[str], keep: int) -> list[str]:
        """A stage with fewer of the equal layers."""
        equal = [name for name in names if name in self.equal]
        gone = set(equal[keep * self.width :])
        return [name for name in names if name not in gone]

    def _mine(self, place: int) -> list[int]:
        if STAGES_PER_RANK[self.asked.schedule] == 1:
            return [place]
        if self.asked.schedule == "zbv":
            return [place, 2 * self.ranks - 1 - place]
        return [place, place + self.ranks]

    def _microbatches(self) -> list[Any]:
        batch, number = self.tracing.batch(self.size), self.asked.microbatches
        return pieces(batch, number, "parallelism.microbatches")

    def _start(self, model: nn.Module) -> dict[str, float]:
        """Divide the whole model as each rank does before it leaves layers to others, and tell what
        that takes."""
        tracker = Tracker()
        tracker.watch([*model.parameters(), *model.buffers()], "parameters")
        with tracker:
            share_weights(model)
            if self.mesh is not None:
                self._divide(model, self.mesh)
        return dict[str, float](tracker.peaks()["start"])

    def _forms(self, model: nn.Module) -> list[Any]:
        """What goes into each stage, and behind the last what comes out.

        Where `tensor` ranks compute layers together it is what the first of them has: a part of the
        outputs within a split, of the positions under sequence parallelism, else the whole.
        """
        subject = self.tracing.subject
        with torch.no_grad():
            batch = self._microbatches()[0]
            (x,) = inputs_of(subject.loss, batch, training=True)
            forms = [x]
            same: set[str] = set()
            for names in self.stages:
                with subject.autocast():
                    for name in names:
                        if name in same:
                            continue
                        y = model.get_submodule(name)(x)
                        if self.width == 1 and name in self.equal and _alike(x, y):
                            same = set(self.equal)  # the others hand on the same form
                        x = y
                forms.append(torch.empty(x.shape, dtype=x.dtype))
        return forms

    def _step(self, place: int, names: list[list[str]]) -> Trace:
        tracing, asked = self.tracing, self.asked
        subject = tracing.subject
        mine, last = self._mine(place), len(self.stages) - 1
        order = self._order(place)
        forward_passes = sum(each.kind == "forward" for each in order)
        sent: Counter[str] = Counter()
        with explained(), tracing.fakes:
            plain = copied(_part(tracing.model, [name for stage in names for name in stage]))
            tracker = Tracker()
            tracker.watch(plain.parameters(), "parameters")
            tracker.watch(plain.buffers(), "buffers")
            with tracker:
                strategy = self._spread(plain, names)
                layers = [[plain.get_submodule(name) for name in stage] for stage in names]
                tracker.name(plain.buffers(), "buffers", anew=True)
                tracker.name(plain.parameters(), "parameters", anew=True)
                optimizer = prepared(subject, strategy, tracker)
                batches = self._microbatches()
                received = self._received(mine, last)
                tracker.name(
                    [b for pair in received for each in pair for b in each], "buffers", anew=True
                )
                tracker.phase, tracker.flops, tracker.calls = "forward", 0, 0
                tracker.sent = Counter()
                under_way: dict[tuple[int, int], _Way] = {}
                weights = [
                    [p for module in stage for p in module.parameters() if p.requires_grad]
                    for stage in layers
                ]

                def forward(stage: int, chunk: int, index: int) -> _Way:
                    inputs, _ = received[chunk]
                    if stage - 1 in mine:  # handed on in place
                        inputs[index] = under_way[mine.index(stage - 1), index].output
                    if stage:
                        x = inputs[index]
                    else:
                        (x,) = inputs_of(subject.loss, batches[index], training=True)
                    x = x.detach()
                    if stage:
                        x.requires_grad_()
                    output = self._forward(layers[chunk], x)
                    if stage < last:
                        return _Way(x, output, output)
                    with subject.autocast():
                        loss, _ = loss_given(subject.loss, output, batches[index], training=True)
                    return _Way(x, output, loss)

                for each in order:
                    stage, key = mine[each.chunk], (each.chunk, each.microbatch)
                    if each.kind == "forward":
                        under_way[key] = forward(stage, *key)
                        continue
                    tracker.phase = "backward"
                    _, gradients = received[each.chunk]
                    gradient = None if stage == last else gradients[each.microbatch]
                    if each.kind == "input":
                        # The first stage's input needs no gradient, and all is left for later.
                        if stage:
                            under_way[key].to_input(gradient, weights[each.chunk])
                        continue
                    under_way.pop(key).to_weights(gradient, weights[each.chunk])
                    name_gradients(strategy, tracker)
                times = len(mine) * asked.microbatches / forward_passes
                flops, calls = tracker.flops * times, tracker.calls * times
                for kind, number in tracker.sent.items():
                    sent[kind] += round(number * times)
                strategy.average_gradients()
                name_gradients(strategy, tracker)
                tracker.phase = "update"
                strategy.clip(subject.clip)
                optimizer.step()
        trained = sum(p.numel() * p.element_size() for p in strategy.parameters.values())
        for stage in mine:
            # Between two stages of its own a rank sends nothing.
            ends = [s for s, other in ((stage, stage - 1), (stage + 1, stage + 1))
                    if 0 <= other <= last and other not in mine]  # fmt: skip
            sent["send"] += asked.microbatches * sum(_bytes(self.forms[end]) for end in ends)
        copies = asked.degrees.data
        sent["all-reduce"] += round(2 * (copies - 1) / copies * trained)
        peaks = {phase: dict[str, float](held) for phase, held in tracker.peaks().items()}
        peaks["start"] = max(self.start, peaks["start"], key=lambda held: sum(held.values()))
        return Trace(
            peaks,
            flops * subject.rounds,
            {kind: float(number) for kind, number in sent.items() if number},
            calls + 2 * asked.microbatches * len(mine) + (copies > 1),
            trained,
        )

    def _spread(self, part: nn.Module, names: list[list[str]]) -> Strategy:
        """Have the layers computed by `tensor` ranks, and again in the backward pass, as asked."""
        if self.asked.recompute:
            whole = self.tracing.subject.declaration
            held = {name for stage in names for name in stage}
            gone = [layer for layer in whole.layers if not held.issuperset(layer)]
            recompute(part, without(whole, gone))
        if self.mesh is None:
            return Alone(part)
        self._divide(part, self.mesh)
        return _Parts(part, self.mesh)

    def _divide(self, model: nn.Module, mesh: Mesh) -> None:
        """As the engine does before it leaves layers to other ranks: the halves of a split need not
        be on one rank."""
        declaration = self.tracing.subject.declaration
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of layers that other ranks hold
            tensor.divide(model, declaration, mesh, sequence_parallel=self.asked.sequence_parallel)

    def _order(self, place: int) -> list[Pass]:
        """What a rank does, with as many micro-batches under way as in the whole step."""
        schedule, number = self.asked.schedule, self.asked.microbatches
        if schedule in SPLIT:  # the end, where weights' gradients are put off, counts too
            return passes(schedule, self.ranks, place, min(number, 2 * self.ranks))
        chunks = STAGES_PER_RANK[schedule]
        rounds = _ROUNDS if chunks == 1 else chunks * self.ranks
        return shortened(passes(schedule, self.ranks, place, number), rounds)

    def _received(self, mine: list[int], last: int) -> list[tuple[list[Tensor], list[Tensor]]]:
        """Where a stage's inputs and its outputs' gradients arrive, for all micro-batches."""
        number = self.asked.microbatches
        return [
            (
                [torch.empty_like(self.forms[s]) for _ in range(number)] if s else [],
                [torch.empty_like(self.forms[s + 1]) for _ in range(number)] if s < last else [],
            )
            for s in mine
        ]

    def _forward(self, modules: list[nn.Module], x: Tensor) -> Tensor:
        with self.tracing.subject.autocast():
            for module in modules:
                x = module(x)
        return x


@dataclass
class _Way:
    """What a rank keeps of a micro-batch that has gone through one of its stages."""

    given: Tensor
    output: Tensor
    result: Tensor
    """The output, or the loss of it."""
    groups: list[dict[str, Any]] | None = None
    """What is kept for the weights' gradients once the input's was computed."""

    def to_input(self, gradient: Tensor | None, weights: list[nn.Parameter]) -> None:
        """Compute the gradient of what was given."""
        self.output = self.result
        gradients = None if gradient is None else [gradient]
        _, self.groups = stage_backward_input([self.result], gradients, [self.given], iter(weights))

    def to_weights(self, gradient: Tensor | None, weights: list[nn.Parameter]) -> None:
        """Add to the gradients of weights, and compute that of the input if that was not done."""
        if self.groups is None:
            self.result.backward(gradient)
        else:
            stage_backward_weight(iter(weights), self.groups)


class _Parts(Divided):
    """A rank's parts of the layers that it computes with others."""

    def __init__(self, model: nn.Module, mesh: Mesh) -> None:
        self._take(model, mesh)

    def local_gradients(self) -> AbstractContextManager[None]:
        return nullcontext()


def _part(model: nn.Module, names: list[str]) -> nn.Module:
    """Some modules of a model, under their names."""
    root = nn.Module()
    for name in names:
        at = root
        *path, last = name.split(".")
        for step in path:
            if not hasattr(at, step):
                at.register_module(step, nn.Module())
            at = at.get_submodule(step)
        at.register_module(last, model.get_submodule(name))
    return root


def _alike(x: Tensor, y: Tensor) -> bool:
    return x.shape == y.shape and x.dtype == y.dtype


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
