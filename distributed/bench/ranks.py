"""A rank of `trainhall bench collectives`: measures what it is asked for with the other ranks.

    python -m trainhall.distributed.bench.ranks '{"rank": 0, "store": PATH, "scenario": …}'

Rank 0 writes what was found to stdout, as one JSON object. All that is compared takes turns on the
same numbers within one run; a time is the slowest rank's, from a barrier to the end.
"""

import json
import math
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from trainhall.distributed.bench.request import (
    COMPRESSIONS,
    NATIVE,
    UNBUCKETED,
    Measurements,
    Scenario,
    Sync,
    Time,
    schedule,
)
from trainhall.distributed.collectives.communicator import Communicator
from trainhall.distributed.compression.choose import choose
from trainhall.distributed.compression.interface import Bucket, Compression, Exchange
from trainhall.distributed.exchange import NativeExchange
from trainhall.distributed.gloo import Gloo
from trainhall.distributed.probe import ByRings, measure_links, measure_one_way
from trainhall.distributed.process_group import cpu_group

TIMEOUT = 120.0
SECONDS = 4.0
"""About how long each size is measured."""
ROUNDS = range(3, 100)
SYNC_ROUNDS = 3
DENSE = (NATIVE, "ring", "hierarchical")
BACKWARD_SECONDS = 0.2
BUCKET_ELEMENTS = 25 << 18
"""DDP's own limit, 25 MiB."""

Run = Callable[[Tensor], object]


def resnet18() -> list[tuple[int, ...]]:
    """Return its parameters' shapes, last layer first, as a backward pass finds them."""
    shapes: list[tuple[int, ...]] = [(64, 3, 7, 7), (64,), (64,)]
    before = 64
    for width in (64, 128, 256, 512):
        for block in range(2):
            shapes += [(width, before, 3, 3), (width,), (width,), (width, width, 3, 3)]
            shapes += [(width,), (width,)]
            if before != width and block == 0:
                shapes += [(width, before, 1, 1), (width,), (width,)]
            before = width
    return [*shapes, (1000, 512), (1000,)][::-1]


class Ranks:
    """This rank among the others of a scenario."""

    def __init__(self, scenario: Scenario, group: dist.ProcessGroup) -> None:
        self.scenario = scenario
        self.communicator = Communicator(Gloo(group), timeout=TIMEOUT)
        self.native = NativeExchange(group)

    def measure(self) -> Measurements:
        rings, hosts = ByRings(self.communicator), self.scenario.hosts
        links = measure_one_way(rings, hosts, measure_links(rings, hosts))
        times = [time for size in self.scenario.sizes for time in self.compare(size)]
        size = 4 * sum(map(math.prod, resnet18()))
        return Measurements(links, times, self.sync_all(), BACKWARD_SECONDS, size)

    def compare(self, size: int) -> list[Time]:
        """Time all methods in turn on a tensor of `size` bytes."""
        tensor = torch.empty(size // 4)
        runs = {method: self.method(method) for method in self.scenario.methods}

        def turn(number: int) -> dict[str, float]:
            first = number % len(runs)
            order = [*runs][first:] + [*runs][:first]
            found = []
            for method in order:
                tensor.fill_(1)
                found.append(self.seconds(partial(runs[method], tensor)))
                if not tensor[0] == tensor[-1] == self.communicator.world_size:
                    raise RuntimeError(f"{method} did not add up to the right sum")
            return dict(zip(order, self.slowest(found), strict=True))

        turn(0)  # the first finds connections and memory cold
        whole = sum(turn(0).values())
        rounds = int(np.clip(SECONDS / whole, ROUNDS.start, ROUNDS.stop))
        rows = [turn(number) for number in range(rounds)]
        return [
            Time(
                method,
                size,
                statistics.median(row[method] for row in rows),
                statistics.median(row[method] / row[NATIVE] for row in rows),
            )
            for method in runs
        ]

    def method(self, name: str) -> Run:
        if name == NATIVE:
            return self.native.sum
        planned = schedule(name, self.scenario.hosts)
        return lambda tensor: self.communicator.run(planned, tensor)

    def sync_all(self) -> list[Sync]:
        """Time a ResNet-18's gradients: at once, in buckets by some methods, and compressed."""
        dense, native = choose("none", 1.0), self.exchange(NATIVE)
        return [
            self.sync(UNBUCKETED, dense, native, sys.maxsize),
            *(self.sync(name, dense, self.exchange(name)) for name in DENSE),
            *(self.sync(name, choose(name, r), native) for name, r in COMPRESSIONS.items()),
        ]

    def exchange(self, method: str) -> "TimedExchange":
        return TimedExchange(self.native, self.method(method))

    def sync(
        self,
        name: str,
        compression: Compression,
        exchange: "TimedExchange",
        most: int = BUCKET_ELEMENTS,
    ) -> Sync:
        buckets = make_buckets(self.communicator.rank, self.communicator.world_size, most)
        fresh = [bucket.flat.clone() for bucket in buckets]

        def combine(backward: float) -> float:
            """Time in seconds from the end of the backward pass."""
            for bucket, gradient in zip(buckets, fresh, strict=True):
                bucket.flat.copy_(gradient)
            exchange.seconds = 0.0
            dist.barrier()
            begun = time.perf_counter()
            for number, bucket in enumerate(buckets, start=1):
                # A backward pass on a GPU leaves the processor idle.
                ready = begun + backward * number / len(buckets)
                time.sleep(max(0.0, ready - time.perf_counter()))
                compression.combine(bucket, exchange)
            return time.perf_counter() - begun - backward

        combine(0.0)
        rows = []
        for _ in range(SYNC_ROUNDS):
            whole = combine(0.0)
            own = whole - exchange.seconds
            rows.append(self.slowest([whole, own, combine(BACKWARD_SECONDS)]))
        return Sync(name, *(statistics.median(column) for column in zip(*rows, strict=True)))

    def seconds(self, run: Callable[[], object]) -> float:
        dist.barrier()
        begun = time.perf_counter()
        run()
        return time.perf_counter() - begun

    def slowest(self, seconds: list[float]) -> list[float]:
        """Return the largest over all ranks, for each of some times."""
        found: list[float] = self.communicator.share(np.array(seconds)).max(axis=0).tolist()
        return found


class TimedExchange:
    """Knows how long the ranks talked, so that the rest is the compression's own."""

    def __init__(self, native: Exchange, run: Run) -> None:
        self.rank = native.rank
        self.world_size = native.world_size
        self.seconds = 0.0
        self._native = native
        self._run = run

    def sum(self, tensor: Tensor) -> None:
        begun = time.perf_counter()
        self._run(tensor)
        self.seconds += time.perf_counter() - begun

    def gather(self, tensor: Tensor) -> Tensor:
        begun = time.perf_counter()
        rows = self._native.gather(tensor)
        self.seconds += time.perf_counter() - begun
        return rows


def make_buckets(rank: int, world_size: int, most: int = BUCKET_ELEMENTS) -> list[Bucket]:
    """Make buckets of at most so many elements, filled with numbers of this rank's own."""
    generator = torch.Generator().manual_seed(rank)
    buckets: list[Bucket] = []
    shapes: list[tuple[int, ...]] = []
    for shape in [*resnet18(), None]:
        full = shapes and (shape is None or sum(map(np.prod, [*shapes, shape])) > most)
        if full:
            sizes = [int(np.prod(one)) for one in shapes]
            flat = torch.randn(sum(sizes), generator=generator) / world_size
            views = [part.view(one) for part, one in zip(flat.split(sizes), shapes, strict=True)]
            names = tuple(f"{len(buckets)}.{i}" for i in range(len(shapes)))
            buckets.append(Bucket(len(buckets), flat, tuple(views), names))
            shapes = []
        if shape is not None:
            shapes.append(shape)
    return buckets


def main() -> None:
    request = json.loads(sys.argv[1])
    threading.Thread(target=end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    asked = request["scenario"]
    hosts = tuple(tuple(host) for host in asked["hosts"])
    scenario = Scenario(**asked | {"hosts": hosts, "sizes": tuple(asked["sizes"])})
    rank = request["rank"]
    store = dist.FileStore(request["store"], scenario.ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=scenario.ranks)
    found = Ranks(scenario, cpu_group()).measure()
    if rank == 0:
        sys.stdout.write(json.dumps(asdict(found)) + "\n")
        sys.stdout.flush()
    dist.barrier()
    os._exit(0)  # the destructor of a Gloo group may hang


def end_with_parent() -> None:
    """End with the parent: it never writes, so stdin ends with it."""
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    main()
