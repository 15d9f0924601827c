"""One step of one rank of a pipeline, on tensors without memory.

The ranks of a pipeline tell each other shapes, which a group that only pretends to have ranks
cannot do. So the rank's layers run here with as many micro-batches under way as its schedule keeps
at once; further ones use the same memory again. For the interleaved schedules that number is the
one of their warm-up.
"""

from collections import Counter
from typing import Any, cast

import torch
from torch import Tensor, nn

from trainhall.parallelism.choose import Asked
from trainhall.parallelism.declaration import Declaration
from trainhall.parallelism.degrees import STAGES_PER_RANK
from trainhall.parallelism.layers import recompute
from trainhall.parallelism.plan.trace import (
    LONGER,
    SHORT,
    Copies,
    Trace,
    Tracing,
    copied,
    explained,
    extrapolated,
    name_gradients,
    prepared,
)
from trainhall.parallelism.plan.tracker import KINDS, Tracker
from trainhall.parallelism.stages import Given, cut, inputs_of, pieces


class Held(Copies):
    """The layers that a rank holds; gradients are new in each step."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.clear_gradients()

    def clear_gradients(self) -> None:
        for parameter in self.parameters.values():
            parameter.grad = None


def in_flight(schedule: str, ranks: int, place: int, microbatches: int) -> list[int]:
    """For each stage of a rank, how many micro-batches it keeps activations of at once."""
    match schedule:
        case "gpipe":
            return [microbatches]
        case "1f1b":
            return [min(microbatches, ranks - place)]
        case "zbv":
            return [min(microbatches, ranks)] * 2
        case _:
            total = min(2 * microbatches, ranks + 2 * (ranks - place - 1) + 1)
            second = sum(1 for chunk in range(total) if chunk // ranks % 2)
            return [total - second, second]


class Stages:
    """The ranks of one pipeline."""

    def __init__(self, tracing: Tracing, asked: Asked) -> None:
        self.tracing, self.asked = tracing, asked
        self.ranks = asked.degrees.pipeline
        number = self.ranks * STAGES_PER_RANK[asked.schedule]
        declaration = tracing.subject.declaration
        self.stages = cut(tracing.model, declaration, number)
        subject = tracing.subject
        self.size = subject.batch_size // asked.degrees.samples // subject.rounds
        row = tracing.row
        equal = declaration.layers[row.first : row.first + row.length] if row else ()
        self.equal = [name for layer in equal for name in layer]
        self.width = len(equal[0]) if equal else 1
        self.forms = self._forms()

    def traces(self) -> list[Trace]:
        """Of the first ranks, which keep the most micro-batches, and of the last, with the loss."""
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
        return pieces(self.tracing.batch(self.size), self.asked.microbatches)

    def _forms(self) -> list[Any]:
        """What goes into each stage, and behind the last what comes out."""
        subject = self.tracing.subject
        with self.tracing.fakes, torch.no_grad(), explained():
            batch = self._microbatches()[0]
            (x,) = inputs_of(subject.loss, batch)
            forms = [x]
            same: set[str] = set()
            for names in self.stages:
                with subject.autocast():
                    for name in names:
                        if name in same:
                            continue
                        y = self.tracing.model.get_submodule(name)(x)
                        if self.width == 1 and name in self.equal and _alike(x, y):
                            same = set(self.equal)  # the others hand on the same form
                        x = y
                forms.append(x)
        return forms

    def _step(self, place: int, names: list[list[str]]) -> Trace:
        tracing, asked = self.tracing, self.asked
        subject = tracing.subject
        mine, last = self._mine(place), len(self.stages) - 1
        waiting = in_flight(asked.schedule, self.ranks, place, asked.microbatches)
        sent: Counter[str] = Counter()
        with explained(), tracing.fakes:
            plain = nn.ModuleList(
                nn.ModuleList(tracing.model.get_submodule(name) for name in stage)
                for stage in names
            )
            plain = copied(plain)
            if asked.recompute:
                numbered = (f"{i}.{j}" for i, stage in enumerate(names) for j in range(len(stage)))
                recompute(plain, Declaration(layers=tuple((name,) for name in numbered)))
            layers = [list(cast(nn.ModuleList, stage)) for stage in plain]
            tracker = Tracker()
            tracker.watch([*plain.parameters(), *plain.buffers()])
            with tracker:
                strategy = Held(plain)
                tracker.name(plain.buffers(), "buffers", anew=True)
                tracker.name(plain.parameters(), "parameters", anew=True)
                optimizer = prepared(subject, strategy, tracker)
                batches = self._microbatches()
                received = self._received(mine, last)
                tracker.name(
                    [b for pair in received for each in pair for b in each], "buffers", anew=True
                )
                tracker.phase, tracker.flops = "forward", 0
                done: list[tuple[int, int, Any]] = []
                for stage, modules, number, (inputs, _) in zip(
                    mine, layers, waiting, received, strict=True
                ):
                    for index in range(number):
                        x = inputs[index] if stage else inputs_of(subject.loss, batches[index])[0]
                        done.append((stage, index, self._forward(modules, x, stage)))
                tracker.phase = "backward"
                gradients = {stage: g for stage, (_, g) in zip(mine, received, strict=True)}
                for stage, index, output in reversed(done):
                    if stage == last:
                        with subject.autocast():
                            loss, _ = subject.loss(Given(output), batches[index])
                        loss.backward()
                    else:
                        output.backward(gradients[stage][index])
                total = len(mine) * asked.microbatches
                flops = tracker.flops * total / len(done)
                del output
                done.clear()
                name_gradients(strategy, tracker)
                tracker.phase = "update"
                strategy.clip(subject.clip)
                optimizer.step()
        trained = sum(p.numel() * p.element_size() for p in strategy.parameters.values())
        for stage in mine:
            sent["send"] += asked.microbatches * (
                (_bytes(self.forms[stage]) if stage else 0)
                + (_bytes(self.forms[stage + 1]) if stage < last else 0)
            )
        copies = asked.degrees.data
        sent["all-reduce"] += round(2 * (copies - 1) / copies * trained)
        peaks = {phase: dict[str, float](held) for phase, held in tracker.peaks().items()}
        # Each rank builds the whole model before it leaves layers to others.
        whole = sum(p.numel() * p.element_size() for p in tracing.model.parameters())
        if whole > sum(peaks["start"].values()):
            peaks["start"] = dict.fromkeys(KINDS, 0.0) | {"parameters": float(whole)}
        return Trace(
            peaks,
            flops * subject.rounds,
            {kind: float(number) for kind, number in sent.items() if number},
            2 * asked.microbatches * len(mine) + (copies > 1),
            trained,
        )

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

    def _forward(self, modules: list[nn.Module], x: Tensor, stage: int) -> Tensor:
        x = x.detach()
        if stage:
            x.requires_grad_()
        with self.tracing.subject.autocast():
            for module in modules:
                x = module(x)
        return x


def _alike(x: Tensor, y: Tensor) -> bool:
    return x.shape == y.shape and x.dtype == y.dtype


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
