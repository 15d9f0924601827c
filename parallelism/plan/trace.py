"""One training step of one rank on tensors without memory: what it holds, computes and sends.

The strategies' own code runs, in a process group that only pretends to have other ranks. So what is
predicted is what the engine does, not a formula for it. Two things are imitated: the buckets of
DistributedDataParallel, which looks at its tensors' values, and the schedules of a pipeline, whose
ranks ask each other for shapes (`pipeline_trace`).
"""

import copy
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensor, FakeTensorMode
from torch.distributed.tensor.debug import _clear_sharding_prop_cache
from torch.optim import Optimizer
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._pytree import tree_leaves, tree_map

from trainhall.parallelism.choose import StrategyConfig, divided
from trainhall.parallelism.declaration import Declaration
from trainhall.parallelism.degrees import Degrees, DegreesError
from trainhall.parallelism.layers import recompute
from trainhall.parallelism.mesh import Mesh
from trainhall.parallelism.plan.copies import Copies, Shards, SingleRank
from trainhall.parallelism.plan.depth import equal_layers, shorten
from trainhall.parallelism.plan.servers import Pushing, Serving
from trainhall.parallelism.plan.tracker import Tracker, tensors_in
from trainhall.parallelism.strategy import Loss, NoGradientError, Strategy, Tools

CPU = torch.device("cpu")
SHORT, LONGER = 2, 3
"""Equal layers of the two models from which a long one is extrapolated."""


_Module = TypeVar("_Module", bound=nn.Module)


class TraceError(RuntimeError):
    """The model does something on its way that needs the values of tensors."""


@dataclass(frozen=True)
class Subject:
    """The subject of a plan: a task's model and how a step trains it."""

    build_model: Callable[[], nn.Module]
    declaration: Declaration
    loss: Loss
    batch: Callable[[int], Any]
    """A rank's micro-batch of so many samples; its values mean nothing."""
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer]
    autocast: Callable[[], AbstractContextManager[Any]]
    clip: float | None
    batch_size: int
    """Samples of a step over all ranks."""
    rounds: int
    """Micro-batches of a step and rank that are accumulated."""
    scales: bool = False
    """The loss is scaled, as with fp16: gradients are divided again before the optimizer's step."""


@dataclass(frozen=True)
class Trace:
    """The memory, operations and messages of one rank's step."""

    peaks: dict[str, dict[str, float]]
    """By phase (`tracker.PHASES`), the most bytes held at once, by kind (`tracker.KINDS`)."""
    flops: float
    sent: dict[str, float]
    """Bytes by collective."""
    calls: float
    """Collectives, each of which takes a moment whatever its size."""
    trained: float
    """Bytes of the weights that this rank's optimizer updates."""

    @property
    def memory(self) -> dict[str, float]:
        """Bytes by kind at the moment of the step, or of its preparation, that holds the most."""
        return max(self.peaks.values(), key=lambda held: sum(held.values()))


class Fakes(FakeTensorMode):
    """Tensors without memory; what is computed from real ones alone, such as meshes, stays real."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # as `Tracker`

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, object] | None = None
    ) -> Any:
        if func is torch.ops.prim.device.default and isinstance(args[0], FakeTensor):
            return args[0].fake_device
        kwargs = kwargs or {}
        given = tensors_in((*args, *kwargs.values()))
        if given and not any(isinstance(tensor, FakeTensor) for tensor in given):
            return func(*args, **kwargs)
        # As `super().__torch_dispatch__`, without its costly switch of the compiler.
        return self.dispatch(func, types, args, kwargs)


class Tracing:
    """Traces steps of one subject, within a `fake_process_group`."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.fakes = Fakes(allow_non_fake_inputs=True)
        with self.fakes, as_trace_error():
            model = subject.build_model()
        with FakeCopyMode(self.fakes):  # what was made of numbers (`torch.tensor(0)`) is real yet
            self.model = copy.deepcopy(model)
        self.row = equal_layers(self.model, subject.declaration)
        self.meshes: dict[Degrees, Mesh] = {}
        self.shortened: dict[int | None, tuple[nn.Module, Declaration]] = {
            None: (self.model, subject.declaration)
        }

    def model_of(self, layers: int | None) -> tuple[nn.Module, Declaration]:
        """Return a copy of the model, with so many layers of its row of equal ones."""
        if layers not in self.shortened:
            assert self.row is not None
            declaration = self.subject.declaration
            self.shortened[layers] = shorten(copied(self.model), declaration, self.row, layers or 0)
        model, declaration = self.shortened[layers]
        return copied(model), declaration

    def batch(self, size: int) -> Any:
        """Return a micro-batch of so many samples, without memory."""
        return tree_map(self._faked, self.subject.batch(size))

    def _faked(self, leaf: Any) -> Any:
        return self.fakes.from_tensor(leaf) if isinstance(leaf, Tensor) else leaf

    def step(self, config: StrategyConfig) -> Trace:
        """Trace a step of the mesh's first rank under `ddp`, `fsdp` or `tensor`."""
        short = None if self.row is None else SHORT
        trace = self._step(config, short)
        if self.row is None:
            return trace
        for length in range(LONGER, self.row.length + 1):
            shorter, trace = trace, self._step(config, length)
            if grows_evenly(shorter, trace):
                return extrapolated(shorter, trace, length - 1, length, self.row.length)
        return trace

    def servers(self, config: StrategyConfig) -> list[Trace]:
        """Trace a step of a worker and of a server; each sends as many bytes as the busier of
        them, to which the other's come."""
        worker = self.step(config)
        with as_trace_error(), self.fakes:
            plain, _ = self.model_of(None)
            tracker = Tracker()
            tracker.watch(plain.parameters(), "parameters")
            tracker.watch(plain.buffers(), "buffers")
            with tracker:
                strategy = Serving(plain, config.degrees.servers)
                tracker.name(plain.parameters(), "parameters", overwrite=True)
                tracker.name(strategy.messages, "buffers", overwrite=True)
                optimizer = prepared(self.subject, strategy, tracker)
                strategy.take_gradients()
                tracker.phase = "update"
                strategy.clip(self.subject.clip)
                optimizer.step()
        whole = sum(p.nbytes for p in self.model.parameters() if p.requires_grad)
        held = sum(p.nbytes for p in strategy.parameters.values())
        sent = {"send": 2.0 * max(whole, held * config.degrees.data)}
        server = Trace(tracker.peaks(), 0, {}, 0, held)
        calls = 2 * config.degrees.servers
        return [replace(worker, sent=sent, calls=calls, trained=held), server]

    def mesh(self, degrees: Degrees) -> Mesh:
        if degrees not in self.meshes:
            self.meshes[degrees] = Mesh(degrees, CPU)
        return self.meshes[degrees]

    def _step(self, config: StrategyConfig, layers: int | None) -> Trace:
        subject, degrees = self.subject, config.degrees
        with as_trace_error():
            meshless = config.strategy in ("ddp", "parameter_server")
            mesh = None if meshless else self.mesh(degrees)
            with self.fakes:
                plain, declaration = self.model_of(layers)
                if config.recompute:
                    recompute(plain, declaration)
                tracker = Tracker()
                tracker.watch(plain.parameters(), "parameters")
                tracker.watch(plain.buffers(), "buffers")
                with tracker:
                    strategy = _spread(config, plain, declaration, mesh)
                    del plain
                    tracker.name(strategy.model.buffers(), "buffers", overwrite=True)
                    tracker.name(strategy.model.parameters(), "parameters", overwrite=True)
                    if isinstance(strategy, Pushing):
                        tracker.name(strategy.messages, "buffers", overwrite=True)
                    optimizer = prepared(subject, strategy, tracker)
                    parts = config.logical_shards or degrees.samples
                    size = subject.batch_size // parts // subject.rounds
                    return _take_step(self, strategy, optimizer, tracker, size, config)


def copied(model: _Module) -> _Module:
    """Return a model of its own, without memory as the first one."""
    # Copies that `deepcopy` makes of such tensors do not share memory with their own views.
    memo: dict[int, Any] = {id(b): torch.empty_like(b) for b in model.buffers()}
    for parameter in model.parameters():
        memo[id(parameter)] = nn.Parameter(torch.empty_like(parameter), parameter.requires_grad)
    return copy.deepcopy(model, memo)


def _take_step(
    tracing: Tracing,
    strategy: Strategy,
    optimizer: Optimizer,
    tracker: Tracker,
    size: int,
    config: StrategyConfig,
) -> Trace:
    subject = tracing.subject
    tools = tools_of(subject, tracker)
    flops = calls = 0.0
    sent: Counter[str] = Counter()
    for last, times in _passes(strategy, subject.rounds):
        tracker.phase, tracker.flops, tracker.calls = "forward", 0, 0
        tracker.sent = Counter()
        batch = tracing.batch(size)
        tracker.watch([b for b in tree_leaves(batch) if isinstance(b, Tensor)], "activations")
        strategy.backward(batch, subject.loss, tools, rounds=subject.rounds, last=last)
        del batch
        flops += tracker.flops * times
        calls += tracker.calls * times
        for kind, number in tracker.sent.items():
            sent[kind] += number * times
    tracker.sent = sent
    name_gradients(strategy, tracker)
    tracker.phase = "update"
    strategy.clip(subject.clip)
    optimizer.step()
    strategy.clear_gradients()
    trained = sum(p.numel() * p.element_size() for p in strategy.parameters.values())
    if config.strategy == "ddp" and config.degrees.data > 1:
        share = 2 * (1 - 1 / config.degrees.data)
        sent["all-reduce"] += round(share * trained)
        calls += math.ceil(trained / (config.bucket_mb * 2**20))
    return Trace(tracker.peaks(), flops, dict[str, float](sent), calls, trained)


def _passes(strategy: Strategy, rounds: int) -> Iterator[tuple[bool, int]]:
    """Yield the passes of a step: whether it is the last, and how many equal ones it represents."""
    shards = strategy.begin() if isinstance(strategy, Shards) else (True,)
    for final in shards:
        if rounds > 1:
            yield False, rounds - 1
        yield final, 1


def prepared(subject: Subject, strategy: Strategy, tracker: Tracker) -> Optimizer:
    """Return the optimizer, which has its state from the start."""
    optimizer = subject.optimizer(strategy.parameters.values())
    state = [v for s in optimizer.state.values() for v in s.values() if isinstance(v, Tensor)]
    tracker.name(state, "optimizer")
    return optimizer


def name_gradients(strategy: Strategy, tracker: Tracker) -> None:
    """Show the tracker which memory gradients have."""
    gradients = [p.grad for p in strategy.parameters.values() if p.grad is not None]
    gradients += [p.grad for p in strategy.model.parameters() if p.grad is not None]
    tracker.name(gradients, "gradients", overwrite=True)


def tools_of(subject: Subject, tracker: Tracker) -> Tools:
    def forward_ended() -> None:
        tracker.phase = "backward"

    return Tools(
        autocast=subject.autocast,
        scale=lambda loss: loss * torch.ones_like(loss) if subject.scales else loss,
        forward_ended=forward_ended,
        backward_ended=lambda: None,
        communication_ended=lambda: None,
    )


def _spread(
    config: StrategyConfig, model: nn.Module, declaration: Declaration, mesh: Mesh | None
) -> Strategy:
    """Spread as `choose.apply`, with a mesh that was built where tensors are real."""
    if config.strategy == "parameter_server":
        return Pushing(model, config.degrees.servers)
    if mesh is None:
        ranks = config.degrees.data
        if config.logical_shards is not None:
            return Shards(model, ranks, config.logical_shards, config.bucket_mb * 2**20)
        return Copies(model) if ranks > 1 else SingleRank(model)
    return divided(config, model, declaration, mesh, CPU)


def grows_evenly(short: Trace, longer: Trace) -> bool:
    """Return whether the peaks of two lengths are at the same moments of a step.

    If so, one layer more never lowers the memory at any moment.
    """
    return all(
        size <= longer.peaks[phase].get(kind, 0)
        for phase, held in short.peaks.items() for kind, size in held.items()
    )  # fmt: skip


def extrapolated(short: Trace, longer: Trace, a: float, b: float, layers: float) -> Trace:
    """Extrapolate a step to `layers` equal layers from what it takes with `a` and `b` of them."""

    def line(low: float, high: float) -> float:
        return max(0.0, low + (high - low) * (layers - a) / (b - a))

    def lines(low: dict[str, float], high: dict[str, float]) -> dict[str, float]:
        return {key: line(low.get(key, 0), high.get(key, 0)) for key in low.keys() | high.keys()}

    return Trace(
        {phase: lines(short.peaks[phase], longer.peaks[phase]) for phase in short.peaks},
        line(short.flops, longer.flops),
        lines(short.sent, longer.sent),
        line(short.calls, longer.calls),
        line(short.trained, longer.trained),
    )


@contextmanager
def fake_process_group(world_size: int) -> Iterator[None]:
    """Open a default process group of so many ranks; all but the first, this one, do nothing.

    What torch itself warns of does not concern planning: a step that is taken warns again.
    """
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world_size)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"torch\.")
            yield
    finally:
        dist.destroy_process_group()
        _clear_sharding_prop_cache()  # it holds meshes, whose groups are gone


@contextmanager
def as_trace_error() -> Iterator[None]:
    """Raise TraceError for what fails on tensors without memory."""
    try:
        yield
    except (DegreesError, NoGradientError):
        raise
    except Exception as error:
        raise TraceError(f"{type(error).__name__}: {str(error).splitlines()[0]}") from error
