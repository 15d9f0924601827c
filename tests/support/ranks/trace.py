"""Ranks that load a checkpoint, or that run what the launch says with a bug planted in them."""

import json
import os
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trainhall.distributed import process_group
from trainhall.distributed.collectives.algorithms.ring import Ring
from trainhall.distributed.collectives.schedule import Round
from trainhall.distributed.environment import RankEnvironment
from trainhall.parallelism.data_parallel import ddp
from trainhall.parallelism.data_parallel.fsdp import FullyShardedData
from trainhall.parallelism.pipelining.pipeline import Pipeline
from trainhall.training import rank
from trainhall.training.common import random_state
from trainhall.training.common.weights_hash import weights_sha256
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.launch import Launch
from trainhall.training.link.spool import EventSpool, MetricSpool
from trainhall.training.loop.loop import Loop
from trainhall.training.process.rank_context import RankContext


def as_rank(path: Path, work: Callable[[RankContext], None]) -> int:
    """Do something as a rank of the folder's launch."""
    torch.set_num_threads(1)
    folder = AttemptFolder(path)
    environment = RankEnvironment.read(os.environ)
    launch = Launch.model_validate_json(folder.launch.read_bytes())
    events = EventSpool(folder.events(environment.rank), environment.rank)
    device = torch.device("cpu")
    with process_group.joined(environment, device=device, namespace="trace"):
        try:
            metrics = MetricSpool(folder.metrics(environment.rank))
            work(RankContext(environment, launch, folder, device, events, metrics))
        except Exception:
            traceback.print_exc()
            return 1
    return 0


def loaded(path: Path) -> int:
    """Load the launch's checkpoint and write down everything that came of it, made whole."""

    def work(context: RankContext) -> None:
        loop = Loop(context)
        loop.resume()
        strategy = loop.strategy
        tensors = {f"model/{name}": weight for name, weight in strategy.full_weights()}
        state = sorted(loop.state.tensors()["optimizer"].items())
        tensors |= {f"optimizer/{name}": tensor for name, tensor in strategy.whole(state)}
        facts = {
            "step": loop.state.step,
            "sampler": loop.sampler.state(),
            "sha256": weights_sha256(strategy.full_weights()),
        }
        random = random_state.capture(context.device)
        (path / f"random{strategy.stream}.json").write_text(json.dumps(random))
        if context.environment.rank == 0:
            (path / "facts.json").write_text(json.dumps(facts))
            copies = {name: tensor.detach().clone() for name, tensor in tensors.items()}
            save_file(copies, path / "loaded.safetensors")

    return as_rank(path, work)


def wrong_scale(path: Path) -> int:
    """Gradients are summed over the ranks, not averaged."""
    average = FullyShardedData.average_gradients

    def scaled(self: FullyShardedData) -> None:
        average(self)
        for parameter in self.parameters.values():
            assert parameter.grad is not None
            parameter.grad *= self.degrees.samples

    FullyShardedData.average_gradients = scaled  # type: ignore[method-assign,assignment]
    return rank.main()


def _smaller(_: nn.Module, inputs: Any, __: Any) -> tuple[Tensor]:
    return (0.9 * inputs[0],)


def wrong_backward(path: Path) -> int:
    """A layer hands a gradient on to those before it that is too small."""
    apply = ddp.apply

    def wrong(model: nn.Module, **options: Any) -> nn.Module:
        layer = model.get_submodule("4")
        layer.register_full_backward_hook(_smaller)
        return apply(model, **options)

    ddp.apply = wrong
    return rank.main()


def local_norm(path: Path) -> int:
    """Each rank clips by the norm of its own shards."""

    def clip(self: FullyShardedData, largest: float | None) -> Tensor:
        parameters = list(self.parameters.values())
        assert largest is not None
        return nn.utils.clip_grad_norm_(parameters, largest)

    FullyShardedData.clip = clip  # type: ignore[method-assign,assignment]
    return rank.main()


def skipped_all_reduce(path: Path) -> int:
    """One layer's gradient stays each rank's own."""
    apply = ddp.apply

    def skipping(model: nn.Module, **options: Any) -> nn.Module:
        ignore: Any = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
        ignore(model, ["2.weight"])
        return apply(model, **options)

    ddp.apply = skipping
    return rank.main()


def lost_addition(path: Path) -> int:
    """In a ring's first round a chunk replaces what it should be added to."""
    rounds = Ring.rounds

    def losing(self: Ring, rank: int) -> Iterator[Round]:
        first, *others = rounds(self, rank)
        assert first.receive is not None
        yield replace(first, receive=replace(first.receive, add=False))
        yield from others

    Ring.rounds = losing  # type: ignore[method-assign]
    return rank.main()


def forgotten_tie(path: Path) -> int:
    """Two stages use one matrix, and each keeps its own gradient of it."""
    Pipeline._join_tied = lambda *_: []  # type: ignore[method-assign]
    return rank.main()
