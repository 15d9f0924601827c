"""One step of one rank of a pipeline, on tensors without memory.

The ranks of a pipeline exchange shapes, which a group that only pretends to have ranks
cannot do. So the rank's layers run here with as many micro-batches under way as its schedule keeps
at once; further ones use the same memory again.
"""

import warnings
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

from trainhall.parallelism import tensor
from trainhall.parallelism.choose import StrategyConfig
from trainhall.parallelism.degrees import SPLIT, STAGES_PER_RANK
from trainhall.parallelism.layers import recompute
from trainhall.parallelism.mesh import Mesh
from trainhall.parallelism.parts import Divided
from trainhall.parallelism.pipelining.batches import pieces
from trainhall.parallelism.pipelining.stages import cut, inputs_of, loss_given, owners_of
from trainhall.parallelism.plan.copies import SingleRank
from trainhall.parallelism.plan.depth import without
from trainhall.parallelism.plan.pass_order import Pass, passes, shortened
from trainhall.parallelism.plan.trace import (
    LONGER,
    SHORT,
    Trace,
    Tracing,
    as_trace_error,
    copied,
    extrapolated,
    name_gradients,
    prepared,
)
from trainhall.parallelism.plan.tracker import Tracker
from trainhall.parallelism.strategy import Strategy, share_weights

_ROUNDS = 2
"""Backward passes that are taken where all are alike: the first finds no gradients yet."""


class PipelineTracer:
    """The ranks of one pipeline."""

    def __init__(self, tracing: Tracing, config: StrategyConfig) -> None:
        self.tracing, self.config = tracing, config
        self.ranks = config.degrees.pipeline
        with as_trace_error():
            self.mesh = tracing.mesh(config.degrees) if config.degrees.tensor > 1 else None
        number = self.ranks * STAGES_PER_RANK[config.schedule]
        declaration = tracing.subject.declaration
        self.stages = cut(tracing.model, declaration, number)
        subject = tracing.subject
        self.size = subject.batch_size // config.degrees.samples // subject.rounds
        row = tracing.row
        equal = declaration.layers[row.first : row.first + row.length] if row else ()
        self.equal = [name for layer in equal for name in layer]
        self.width = len(equal[0]) if equal else 1
        with tracing.fakes, as_trace_error():
            whole = copied(tracing.model)
            self.start = self._start(whole)
            self.forms = self._forms(whole)

    def traces(self) -> list[Trace]:
        """Trace the first ranks, which keep the most micro-batches, and the last, with the loss."""
        places = sorted({0, 1, self.ranks - 1})
        return [self._trace(place) for place in places]

    def _trace(self, place: int) -> Trace:
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
        """Return a stage with fewer of the equal layers."""
        equal = [name for name in names if name in self.equal]
        gone = set(equal[keep * self.width :])
        return [name for name in names if name not in gone]

    def _mine(self, place: int) -> list[int]:
        owners = owners_of(len(self.stages), self.ranks, self.config.schedule)
        return [stage for stage, owner in enumerate(owners) if owner == place]

    def microbatches(self) -> list[Any]:
        batch, number = self.tracing.batch(self.size), self.config.microbatches
        return pieces(batch, number, "parallelism.microbatches")

    def _start(self, model: nn.Module) -> dict[str, float]:
        """Divide the whole model as each rank does before it leaves layers to others, and return
        what that takes."""
        tracker = Tracker()
        tracker.watch([*model.parameters(), *model.buffers()], "parameters")
        with tracker:
            share_weights(model)
            if self.mesh is not None:
                self._divide(model, self.mesh)
        return tracker.peaks()["start"]

    def _forms(self, model: nn.Module) -> list[Any]:
        """Return the form of each stage's input, and of the last stage's output.

        Where `tensor` ranks compute layers together it is what the first of them has: a part of the
        outputs within a split, of the positions under sequence parallelism, else the whole.
        """
        subject = self.tracing.subject
        with torch.no_grad():
            batch = self.microbatches()[0]
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
        """Take a step with some modules of each of the rank's stages, and trace it."""
        subject = self.tracing.subject
        mine, order = self._mine(place), self._order(place)
        with as_trace_error(), self.tracing.fakes:
            plain = copied(_part(self.tracing.model, [name for stage in names for name in stage]))
            tracker = Tracker()
            tracker.watch(plain.parameters(), "parameters")
            tracker.watch(plain.buffers(), "buffers")
            with tracker:
                strategy = self._spread(plain, names)
                layers = [[plain.get_submodule(name) for name in stage] for stage in names]
                tracker.name(plain.buffers(), "buffers", overwrite=True)
                tracker.name(plain.parameters(), "parameters", overwrite=True)
                optimizer = prepared(subject, strategy, tracker)
                run = _Run(self, mine, layers, strategy, tracker)
                tracker.phase, tracker.flops, tracker.calls = "forward", 0, 0
                tracker.sent = Counter()
                for each in order:
                    run.take(each)
                forward_passes = sum(each.kind == "forward" for each in order)
                times = len(mine) * self.config.microbatches / forward_passes
                flops, calls = tracker.flops * times, tracker.calls * times
                sent = Counter({k: round(number * times) for k, number in tracker.sent.items()})
                strategy.average_gradients()
                name_gradients(strategy, tracker)
                tracker.phase = "update"
                strategy.clip(subject.clip)
                optimizer.step()
        trained = sum(p.numel() * p.element_size() for p in strategy.parameters.values())
        copies = self.config.degrees.data
        sent["send"] += self._sent_activations(mine)
        sent["all-reduce"] += round(2 * (copies - 1) / copies * trained)
        peaks = tracker.peaks()
        peaks["start"] = max(self.start, peaks["start"], key=lambda held: sum(held.values()))
        return Trace(
            peaks,
            flops * subject.rounds,
            {kind: float(number) for kind, number in sent.items() if number},
            calls + 2 * self.config.microbatches * len(mine) + (copies > 1),
            trained,
        )

    def _sent_activations(self, mine: list[int]) -> int:
        """Count the bytes of outputs and of inputs' gradients that a rank sends in a step.

        Between two stages of its own it sends nothing.
        """
        last = len(self.stages) - 1
        borders = [(end, end - 1) for end in mine] + [(end + 1, end + 1) for end in mine]
        size = sum(
            _bytes(self.forms[end])
            for end, other in borders
            if 0 <= other <= last and other not in mine
        )
        return self.config.microbatches * size

    def _spread(self, part: nn.Module, names: list[list[str]]) -> Strategy:
        """Spread the layers over `tensor` ranks, recomputed in the backward pass as config."""
        if self.config.recompute:
            whole = self.tracing.subject.declaration
            held = {name for stage in names for name in stage}
            gone = [layer for layer in whole.layers if not held.issuperset(layer)]
            recompute(part, without(whole, gone))
        if self.mesh is None:
            return SingleRank(part)
        self._divide(part, self.mesh)
        return Divided(part, self.mesh)

    def _divide(self, model: nn.Module, mesh: Mesh) -> None:
        """Divide as the engine does before it leaves layers to other ranks: the halves of a split
        need not be on one rank."""
        declaration = self.tracing.subject.declaration
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of layers that other ranks hold
            tensor.divide(model, declaration, mesh, sequence_parallel=self.config.sequence_parallel)

    def _order(self, place: int) -> list[Pass]:
        """Return some of a rank's passes, with as many micro-batches under way as in the whole
        step."""
        schedule, number = self.config.schedule, self.config.microbatches
        if schedule in SPLIT:  # the end, where weights' gradients are put off, counts too
            return passes(schedule, self.ranks, place, min(number, 2 * self.ranks))
        chunks = STAGES_PER_RANK[schedule]
        rounds = _ROUNDS if chunks == 1 else chunks * self.ranks
        return shortened(passes(schedule, self.ranks, place, number), rounds)


class _Run:
    """The passes of micro-batches through one rank's stages.

    All that it holds stays until the step has ended, as on a rank.
    """

    def __init__(
        self,
        tracer: PipelineTracer,
        mine: list[int],
        layers: list[list[nn.Module]],
        strategy: Strategy,
        tracker: Tracker,
    ) -> None:
        self._tracer = tracer
        self._subject = tracer.tracing.subject
        self._mine = mine
        self._last = len(tracer.stages) - 1
        self._layers = layers
        self._strategy = strategy
        self._tracker = tracker
        self._batches = tracer.microbatches()
        self._inputs, self._gradients = self._receiving()
        self._under_way: dict[tuple[int, int], _MicroBatch] = {}
        self._weights = [
            [p for module in stage for p in module.parameters() if p.requires_grad]
            for stage in layers
        ]

    def _receiving(self) -> tuple[list[list[Tensor]], list[list[Tensor]]]:
        """Allocate what stages' inputs and their outputs' gradients arrive in.

        [the rank's stage][micro-batch]; none for the input of the first stage of the pipeline, and
        for the gradient of the last.
        """
        number, forms = self._tracer.config.microbatches, self._tracer.forms

        def like(form: Any) -> list[Tensor]:
            return [torch.empty_like(form) for _ in range(number)]

        inputs, gradients = [], []
        for stage in self._mine:
            inputs.append(like(forms[stage]) if stage else [])
            gradients.append(like(forms[stage + 1]) if stage < self._last else [])
        buffers = [tensor for some in (*inputs, *gradients) for tensor in some]
        self._tracker.name(buffers, "buffers", overwrite=True)
        return inputs, gradients

    def take(self, each: Pass) -> None:
        """Take one pass."""
        stage, key = self._mine[each.chunk], (each.chunk, each.microbatch)
        if each.kind == "forward":
            self._under_way[key] = self._forward(stage, *key)
            return
        self._tracker.phase = "backward"
        gradients = self._gradients[each.chunk]
        gradient = None if stage == self._last else gradients[each.microbatch]
        weights = self._weights[each.chunk]
        if each.kind == "input":
            # The first stage's input needs no gradient, and all is left for later.
            if stage:
                self._under_way[key].to_input(gradient, weights)
            return
        self._under_way.pop(key).to_weights(gradient, weights)
        name_gradients(self._strategy, self._tracker)

    def _forward(self, stage: int, chunk: int, index: int) -> "_MicroBatch":
        batch, subject = self._batches[index], self._subject
        inputs = self._inputs[chunk]
        if stage - 1 in self._mine:  # handed on in place
            inputs[index] = self._under_way[self._mine.index(stage - 1), index].output
        if stage:
            x = inputs[index].detach().requires_grad_()
        else:
            (given,) = inputs_of(subject.loss, batch, training=True)
            x = given.detach()
        output = x
        with subject.autocast():
            for module in self._layers[chunk]:
                output = module(output)
        if stage < self._last:
            return _MicroBatch(x, output, output)
        with subject.autocast():
            loss, _ = loss_given(subject.loss, output, batch, training=True)
        return _MicroBatch(x, output, loss)


@dataclass
class _MicroBatch:
    """A micro-batch that has gone through one of a rank's stages."""

    given: Tensor
    output: Tensor
    result: Tensor
    """The output, or the loss of it."""
    groups: list[dict[str, Any]] | None = None
    """Results kept for the weights' gradients once the input's was computed."""

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


def _part(model: nn.Module, names: list[str]) -> nn.Module:
    """Select some modules of a model, under their names."""
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
