"""Peak rates of known GPUs, by their makers' data sheets."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Sheet:
    """Dense peaks of a data sheet: operations of fp32 (not TF32, which torch does not use unasked)
    and of bf16 or fp16, memory bandwidth, and one direction of the links within a host."""

    fp32: float
    half: float
    memory: float
    links: float
    source: str


SHEETS = {
    "B200": Sheet(75e12, 2250e12, 8.0e12, 900e9, "NVIDIA B200"),
    "H200": Sheet(67e12, 989e12, 4.8e12, 450e9, "NVIDIA H200"),
    "H100 PCIe": Sheet(51e12, 756e12, 2.0e12, 64e9, "NVIDIA H100"),
    "H100": Sheet(67e12, 989e12, 3.35e12, 450e9, "NVIDIA H100"),
    "A100": Sheet(19.5e12, 312e12, 2.0e12, 300e9, "NVIDIA A100 80GB"),
    "V100": Sheet(15.7e12, 125e12, 0.9e12, 150e9, "NVIDIA V100"),
    "L40S": Sheet(91.6e12, 362e12, 0.864e12, 32e9, "NVIDIA L40S"),
    "L4": Sheet(30.3e12, 121e12, 0.3e12, 32e9, "NVIDIA L4"),
    "T4": Sheet(8.1e12, 65e12, 0.3e12, 16e9, "NVIDIA T4"),
}
"""The SXM form where there are several. A name that is part of another comes after it."""


def known_as(name: str) -> str | None:
    """Return a GPU's key in `SHEETS` by its name in NVML, torch or speech; else None."""
    return next((s for s in SHEETS if re.search(rf"\b{s}\b", name, re.IGNORECASE)), None)


def peak_flops(name: str, *, half: bool) -> float | None:
    """Return operations a second, in bf16 and fp16 or in fp32; None for an unknown GPU."""
    known = known_as(name)
    if known is None:
        return None
    return SHEETS[known].half if half else SHEETS[known].fp32
