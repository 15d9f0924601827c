"""Speed of an all-reduce by a schedule over Gloo, against Gloo's own.

    python -m benchmarks.engine.collectives [--algorithm ring] [--ranks 2 4] [--rounds 40]

The ranks of one group run both on the same tensor in turn, round after round, the order within a
round alternating. A round's ratio is ours by Gloo's, on rank 0, from a barrier to the end; the
figures are medians over rounds. Each rank has one thread.
"""

import argparse
import os
import socket
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from benchmarks.report import Figure, report
from trainhall.distributed.collectives.algorithms.registry import NAMES, all_reduce
from trainhall.distributed.collectives.communicator import Communicator
from trainhall.distributed.gloo import Gloo
from trainhall.distributed.process_group import cpu_group

SIZES = (4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20)
LARGE, LARGE_GOAL = 16 << 20, 1.3
SMALL, SMALL_GOAL = 256 << 10, 1.0
TIMEOUT = 120.0

Run = Callable[[torch.Tensor], object]
Timed = tuple[int, list[tuple[float, float]]]
"""A size in bytes, and the seconds of both in each round."""


def run_rank(
    rank: int, ranks: int, port: int, algorithm: str, rounds: int, results: "mp.Queue[Timed]"
) -> None:
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=rank == 0, wait_for_workers=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    communicator = Communicator(Gloo(cpu_group()), timeout=TIMEOUT)
    schedule = all_reduce(algorithm, ranks)
    for size in SIZES:
        times = compare(size, dist.all_reduce, lambda t: communicator.run(schedule, t), rounds)
        if rank == 0:
            results.put((size, times))
    dist.barrier()
    if rank == 0:
        results.close()
        results.join_thread()
    os._exit(0)  # the destructor of a Gloo group may hang


def compare(size: int, theirs: Run, ours: Run, rounds: int) -> list[tuple[float, float]]:
    """Seconds of both, round by round."""
    tensor = torch.empty(size // 4)
    found = []
    for number in range(-2, rounds):
        seconds = [0.0, 0.0]
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            tensor.fill_(1)
            dist.barrier()
            begun = time.perf_counter()
            (theirs, ours)[which](tensor)
            seconds[which] = time.perf_counter() - begun
            assert tensor[0] == tensor[-1] == dist.get_world_size()
        if number >= 0:
            found.append((seconds[0], seconds[1]))
    return found


def measure(algorithm: str, ranks: int, rounds: int) -> list[Figure]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    results: mp.Queue[Timed] = mp.get_context("spawn").Queue()
    arguments = (ranks, port, algorithm, rounds, results)
    group = mp.spawn(run_rank, arguments, nprocs=ranks, join=False)
    assert group is not None
    figures = []
    for _ in SIZES:
        size, times = results.get(timeout=TIMEOUT)
        theirs, ours = (statistics.median(column) for column in zip(*times, strict=True))
        ratio = statistics.median(o / t for t, o in times)
        print(f"{ranks:>5}  {size:>12,}  {theirs * 1e6:>10,.0f}  {ours * 1e6:>10,.0f}  {ratio:.2f}")
        figures.append(figure(algorithm, ranks, size, ratio))
    while not group.join():
        pass
    return figures


def figure(algorithm: str, ranks: int, size: int, ratio: float) -> Figure:
    """The goals are those of a ring of two."""
    goal = None
    if (algorithm, ranks) == ("ring", 2):
        goal = LARGE_GOAL if size >= LARGE else SMALL_GOAL if size <= SMALL else None
    name = f"{algorithm} by Gloo's all-reduce, {ranks} ranks, {size // 1024:,} KiB"
    return Figure(name, ratio, at_most=goal)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--algorithm", choices=NAMES, default="ring")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args()
    print(f"{'ranks':>5}  {'bytes':>12}  {'Gloo µs':>10}  {'ours µs':>10}  ratio")
    figures = [
        one for ranks in options.ranks for one in measure(options.algorithm, ranks, options.rounds)
    ]
    report(*figures)


if __name__ == "__main__":
    main()
