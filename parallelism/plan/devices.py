"""The speed of devices and of the links between them: known ones from their data sheets."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from trainhall.parallelism.sheets import SHEETS, known_as

EFFICIENCY = 0.4
"""The share of a GPU's peak that training reaches, whatever lies between matrix products included:
large GPTs are reported at 21 to 46 % (PaLM, arXiv:2204.02311, table 3)."""


@dataclass(frozen=True)
class Rates:
    """The rates that a step's time is computed from. Rates are per device and second."""

    name: str
    flops: float
    """Operations, as training reaches them."""
    memory: float
    """Bytes that its memory moves."""
    network: float
    """Bytes that it sends to other devices while it receives as many."""
    latency: float
    """Seconds until a collective begins to send."""
    summary: str
    """The source of the numbers."""


_PROBE_SIZE = 512
_PROBE_SECONDS = 0.1
_LOOPBACK = 1e9
_CPU_LATENCY, _GPU_LATENCY = 200e-6, 20e-6
"""Latency of a small Gloo collective between processes of one host, and of a small NCCL one."""


def of_gpu(name: str, *, half: bool) -> Rates | None:
    """Return a known GPU's rates by the name that NVML or a person gives; else None."""
    found = known_as(name)
    if found is None:
        return None
    sheet = SHEETS[found]
    peak = sheet.half if half else sheet.fp32
    return Rates(
        found,
        peak * EFFICIENCY,
        sheet.memory,
        sheet.links,
        _GPU_LATENCY,
        f"{found}: {EFFICIENCY:.0%} of {peak / 1e12:g} TFLOP/s, {sheet.links / 1e9:g} GB/s between "
        f"devices ({sheet.source} data sheet)",
    )


def of_this_cpu(ranks: int, *, half: bool) -> Rates:
    """Measure the rates of one of `ranks` processes on this host's CPU, by a tenth of a second's
    trial."""
    dtype = torch.bfloat16 if half else torch.float32
    left = torch.ones(_PROBE_SIZE, _PROBE_SIZE, dtype=dtype)
    products = _per_second(lambda: left @ left) * 2 * _PROBE_SIZE**3
    source = torch.ones(1 << 22)
    copies = _per_second(source.clone) * 2 * source.numel() * source.element_size()
    return Rates(
        "cpu",
        products / ranks,
        copies / ranks,
        _LOOPBACK / ranks,
        _CPU_LATENCY,
        f"this host's CPU: {products / 1e9:.3g} GFLOP/s measured, shared by {ranks} ranks, "
        f"{_LOOPBACK / 1e9:g} GB/s between them assumed",
    )


def _per_second(work: Callable[[], object]) -> float:
    work()
    begun = time.perf_counter()
    times = 0
    while time.perf_counter() - begun < _PROBE_SECONDS / 2:
        work()
        times += 1
    return times / (time.perf_counter() - begun)
