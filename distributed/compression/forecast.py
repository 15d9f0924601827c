"""Forecasts the time of each compression on measured links, before any step is taken with it.

Sums are taken to go around a ring, and so are the pairs of `topk`; a message costs what
`collectives.cost` says. What a compression itself computes is measured on some of the gradients.
How much of all that the backward pass hides is not known beforehand.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod

import torch
from torch import Tensor

from trainhall.distributed.collectives.algorithms.ring import Ring, RingAllGather
from trainhall.distributed.collectives.cost import Cluster, Link, LinkClass, predict
from trainhall.distributed.collectives.schedule import Schedule
from trainhall.distributed.compression.choose import choose
from trainhall.distributed.compression.interface import Bucket
from trainhall.distributed.compression.power_sgd import rank_for
from trainhall.distributed.compression.top_k import sent

NAMES = ("none", "fp16", "bf16", "topk", "powersgd")
SAMPLE = 1 << 19
"""Numbers on which a compression's own work is measured."""
_RUNS = 3

Shapes = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class Gradients:
    """The gradients that a step combines."""

    shapes: Shapes
    dtype: torch.dtype
    bucket_bytes: float
    device: torch.device

    @property
    def elements(self) -> int:
        return sum(map(prod, self.shapes))

    @property
    def bytes(self) -> int:
        return self.elements * self.dtype.itemsize


@dataclass(frozen=True)
class Forecast:
    """The forecast of a compression; seconds per step."""

    compression: str
    sending_seconds: float
    own_seconds: float
    """Choosing, multiplying, packing and unpacking."""

    @property
    def seconds(self) -> float:
        return self.sending_seconds + self.own_seconds


def forecast(
    compression: str,
    ratio: float,
    gradients: Gradients,
    hosts: Sequence[Sequence[int]],
    links: Mapping[LinkClass, Link],
) -> Forecast:
    """Forecast the time of a step's gradients.

    Args:
        hosts: the ranks of each host.
        links: of each class that there is.
    """
    world_size = sum(map(len, hosts))
    known = next(iter(links.values()))
    cluster = Cluster(
        world_size=world_size,
        devices_per_host=max(map(len, hosts)),
        hosts_per_rack=len(hosts),
        links={kind: links.get(kind, known) for kind in LinkClass},
    )
    buckets = max(1, ceil(gradients.bytes / gradients.bucket_bytes))
    seconds = 0.0
    for schedule, size in _sent(compression, ratio, gradients, world_size):
        seconds += buckets * float(predict(schedule, cluster, [size / buckets])[0])
    return Forecast(compression, seconds, _own_seconds(compression, ratio, gradients, world_size))


def _sent(
    compression: str, ratio: float, gradients: Gradients, ranks: int
) -> list[tuple[Schedule, float]]:
    """Return the collectives of a step, and the bytes of what they end with."""
    itemsize = gradients.dtype.itemsize
    match compression:
        case "fp16" | "bf16":
            return [(Ring(ranks), 2.0 * gradients.elements)]
        case "topk":
            pairs = sent(gradients.elements, ratio) * (torch.int32.itemsize + itemsize)
            return [(RingAllGather(ranks), float(ranks * pairs))]
        case "powersgd":
            first = second = 0
            for shape in gradients.shapes:
                rank = rank_for(shape, ratio)
                first += prod(shape) if rank is None else shape[0] * rank
                second += 0 if rank is None else prod(shape[1:]) * rank
            return [(Ring(ranks), float(size * itemsize)) for size in (first, second) if size]
    return [(Ring(ranks), float(gradients.bytes))]


class _Echo:
    """An exchange with ranks that send what this one sends, and take no time."""

    rank = 0

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size

    def sum(self, tensor: Tensor) -> None:
        pass

    def gather(self, tensor: Tensor) -> Tensor:
        return tensor.expand(self.world_size, -1)


def _own_seconds(compression: str, ratio: float, gradients: Gradients, ranks: int) -> float:
    """Measure the computation of a step's gradients on some of them."""
    if compression == "none":
        return 0.0
    shapes = _some(gradients.shapes)
    elements = sum(map(prod, shapes))
    if not elements:
        return 0.0
    # What training draws must not change.
    generator = torch.Generator(gradients.device).manual_seed(0)
    drawn = torch.randn(
        elements, dtype=gradients.dtype, device=gradients.device, generator=generator
    )
    chosen, exchange = choose(compression, ratio), _Echo(ranks)
    times = []
    for _ in range(_RUNS):
        flat = drawn.clone()
        views = [
            part.view(shape)
            for part, shape in zip(flat.split([prod(s) for s in shapes]), shapes, strict=True)
        ]
        bucket = Bucket(0, flat, tuple(views), tuple(map(str, range(len(views)))))
        _settle(gradients.device)
        begun = time.perf_counter()
        chosen.combine(bucket, exchange)
        _settle(gradients.device)
        times.append(time.perf_counter() - begun)
    # The first time finds memory cold and keeps nothing yet.
    return min(times) * gradients.elements / elements


def _some(shapes: Shapes) -> Shapes:
    """Return the first parameters, the last of them in part."""
    left = SAMPLE
    some: list[tuple[int, ...]] = []
    for shape in shapes:
        if not left:
            break
        size = prod(shape)
        if size > left:
            rows = left * shape[0] // size
            return [*some, (rows, *shape[1:])] if rows else some
        some.append(shape)
        left -= size
    return some


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
