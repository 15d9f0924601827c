"""Cost of combining gradients over so many ranks, in units of one link: the model of
`distributed.collectives.cost` with the same latency and bandwidth between all ranks.

Rings, which NCCL and Gloo use for large tensors, cost 2(n-1)·α + 2(n-1)/n·m·β (Thakur, Rabenseifner
& Gropp, "Optimization of collective communication operations in MPICH", Int. J. High Perform.
Comput. Appl. 19, 2005).
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from trainhall.distributed.collectives.algorithms.registry import all_reduce
from trainhall.distributed.collectives.algorithms.ring import Ring, RingAllGather
from trainhall.distributed.collectives.cost import Cluster, Link, LinkClass, predict
from trainhall.distributed.collectives.schedule import Schedule
from trainhall.training.spec import JobSpec

_ROUND, _VOLUME = Link(1.0, float("inf")), Link(0.0, 1.0)
_FLAT = ("ring", "tree", "halving_doubling", "naive")
"""Algorithms that do not depend on the hosts of the ranks."""


class NotPredictedError(Exception):
    """The cost of this job's communication is not known; the text says why."""


class Cost(NamedTuple):
    """Cost of the collectives of a step."""

    rounds: float
    """Latencies one after the other."""
    volume: float
    """Times that all gradients pass a link."""


def cost_of(spec: JobSpec) -> Callable[[int], Cost]:
    """Return the cost of a job's collectives by the number of its ranks.

    Raises:
        NotPredictedError: it is not known.
    """
    parallelism = spec.parallelism
    if spec.task is None:
        raise NotPredictedError("how the ranks of a script communicate is not known")
    if parallelism.strategy not in ("ddp", "fsdp") or (parallelism.tensor or 1) > 1:
        raise NotPredictedError("the model knows data parallelism only: ddp, and fsdp without "
                                "tensor parallelism")  # fmt: skip
    sync = parallelism.gradient_sync
    if sync.algorithm not in ("native", *_FLAT):
        raise NotPredictedError(f"the cost of {sync.algorithm} depends on the hosts of the ranks")
    if sync.compression == "topk":
        # Every rank sends its own values to all others.
        return cache(lambda ranks: _cost(RingAllGather(ranks), float(ranks)))
    if sync.algorithm == "native":
        return cache(lambda ranks: _cost(Ring(ranks), 1.0))
    if sync.algorithm == "naive":
        return _naive
    return cache(lambda ranks: _cost(all_reduce(sync.algorithm, ranks), 1.0))


def _naive(ranks: int) -> Cost:
    """Return the closed form: the schedule has legs for every rank, which take seconds to add."""
    messages = 2.0 * (ranks - 1)
    return Cost(messages, messages)


def _cost(schedule: Schedule, size: float) -> Cost:
    return Cost(*(_seconds(schedule, link, size) for link in (_ROUND, _VOLUME)))


def _seconds(schedule: Schedule, link: Link, size: float) -> float:
    ranks = schedule.world_size
    cluster = Cluster(
        world_size=ranks, devices_per_host=ranks, links=dict.fromkeys(LinkClass, link)
    )
    return float(predict(schedule, cluster, [size])[0])
