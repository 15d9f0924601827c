"""How many operations a second known GPUs reach at most, by their makers' data sheets."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Peak:
    """Dense operations a second of matrix products."""

    fp32: float
    """Without TF32, which torch does not use unasked."""
    half: float
    """Of bf16 and fp16."""


PEAKS = {
    "B200": Peak(75e12, 2250e12),
    "H200": Peak(67e12, 989e12),
    "H100 PCIe": Peak(51e12, 756e12),
    "H100": Peak(67e12, 989e12),
    "A100": Peak(19.5e12, 312e12),
    "V100": Peak(15.7e12, 125e12),
    "L40S": Peak(91.6e12, 362e12),
    "L4": Peak(30.3e12, 121e12),
    "T4": Peak(8.1e12, 65e12),
}
"""From NVIDIA's data sheets of these names (A100 80GB, V100 SXM2); the SXM form where there are
several. A name that is part of another comes behind it."""


def peak_flops(name: str, *, half: bool) -> float | None:
    """A GPU's peak by its name, as NVML and torch say it; None for an unknown one."""
    for known, peak in PEAKS.items():
        if re.search(rf"\b{known}\b", name, re.IGNORECASE):
            return peak.half if half else peak.fp32
    return None
