"""Batches per second, against PyTorch's DataLoader with the same images, transforms and workers.

    python -m benchmarks.engine.loader [--workers 2] [--size 224] [--images 768] [--rounds 5]

One run writes JPEG files, then reads them through Trainhall's loader and through a bare DataLoader
in turn, round after round, and compares the medians. Both read with the same number of processes,
crop and flip at random, and stack batches of 32. The bare one draws its crops from one generator a
worker; Trainhall's seeds each sample's own, so that no result depends on who read it.

Where other work takes the processor, the time on the processor a sample says more than the speed.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from PIL import Image
from torch.utils.data import DataLoader

from benchmarks.report import Figure, report
from trainhall.training.common.sample_order import Sampler
from trainhall.training.data.batch_reader import Reader
from trainhall.training.data.loader import Loader, Share, Workers
from trainhall.training.spec.parse import validate_spec
from trainhall.training.tasks import build_task
from trainhall.training.tasks.base import Task

BATCH = 32
PREFETCH = 2
GOAL = 0.95
PHOTO = (500, 375)
"""Width and height in pixels, as most of ImageNet's photographs."""


def write_images(root: Path, number: int) -> None:
    """JPEG files with something to see in them: noise at several scales."""
    rng = np.random.default_rng(0)
    for i in range(number):
        folder = root / f"class-{i % 2}"
        folder.mkdir(exist_ok=True)
        small = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8))
        large = np.asarray(small.resize(PHOTO, Image.Resampling.BICUBIC), dtype=np.int16)
        noisy = np.clip(large + rng.integers(-12, 12, large.shape), 0, 255).astype(np.uint8)
        Image.fromarray(noisy).save(folder / f"{i:05}.jpg", quality=90)


def bare_loader(task: Task, workers: int) -> Callable[[int], None]:
    """What one writes by hand, as a function that reads so many batches."""
    loader: DataLoader[Any] = DataLoader(
        task.train_data,  # type: ignore[arg-type]
        batch_size=BATCH,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        prefetch_factor=PREFETCH,
        persistent_workers=True,
    )

    def batches() -> Any:
        while True:
            yield from loader

    endless = batches()

    def read(number: int) -> None:
        for _ in range(number):
            next(endless)

    return read


def trainhall_loader(task: Task, workers: int) -> Callable[[int], None]:
    """Trainhall's loader of one rank, likewise."""
    sampler = Sampler(len(task.train_data), BATCH, seed=0)
    reader = Reader(task, task.train_data, seed=0)
    loader = Loader(reader, sampler, Share(0, 1), Workers(workers, PREFETCH), str)

    def read(number: int) -> None:
        for _ in range(number):
            for _ in loader.step():
                pass

    return read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--size", type=int, default=224, help="pixels of what the model sees")
    parser.add_argument("--images", type=int, default=768)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=20, help="batches in a round")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="trainhall-benchmark-") as folder:
        write_images(Path(folder), options.images)
        params = {"root": folder, "image_size": options.size}
        spec = {"name": "loader", "task": {"name": "image_folder", "params": params}}
        task = build_task(validate_spec(spec))
        loaders = {
            "bare": bare_loader(task, options.workers),
            "trainhall": trainhall_loader(task, options.workers),
        }
        for read in loaders.values():
            read(2 * options.workers * PREFETCH)
        rates: dict[str, list[float]] = {name: [] for name in loaders}
        costs: dict[str, list[float]] = {name: [] for name in loaders}
        samples = options.batches * BATCH
        for number in range(options.rounds):
            # Each goes first as often as the other.
            for name in sorted(loaders, reverse=bool(number % 2)):
                # All have read ahead what they may: the round pays for as much as it takes.
                worked = at_rest()
                begun = time.perf_counter()
                loaders[name](options.batches)
                rates[name].append(samples / (time.perf_counter() - begun))
                costs[name].append((at_rest() - worked) / samples * 1e3)
            print("  ".join(f"{name} {values[-1]:7,.0f}/s" for name, values in rates.items()))
    bare, ours = (statistics.median(rates[name]) for name in ("bare", "trainhall"))
    bare_cost, our_cost = (statistics.median(costs[name]) for name in ("bare", "trainhall"))
    report(
        Figure("samples a second through a bare DataLoader", bare, "/s"),
        Figure("samples a second through Trainhall", ours, "/s"),
        Figure("time on the processor a sample, bare", bare_cost, "ms"),
        Figure("time on the processor a sample, Trainhall", our_cost, "ms"),
        Figure("share of a bare DataLoader's speed", ours / bare, at_least=GOAL),
    )


def at_rest() -> float:
    """Wait until no worker reads ahead any more; the seconds on the processor of all until then."""
    processes = [psutil.Process(), *psutil.Process().children()]
    before = -1.0
    while True:
        now = sum(sum(process.cpu_times()[:2]) for process in processes)
        if now == before:
            return now
        before = now
        time.sleep(0.15)


if __name__ == "__main__":
    main()
