"""The Python environment of a simulated attempt."""

import zlib
from typing import Any

from trainhall import __version__
from trainhall.training.link.launch import Launch


def packages_of(launch: Launch) -> dict[str, Any]:
    """Return the report of rank 0: some users have newer packages than others."""
    is_newer = zlib.crc32((launch.spec.user or "").encode()) % 2 == 1
    numpy, torch, torchvision, cuda = (
        ("2.3.3", "2.12.1", "0.27.1", "12.8") if is_newer else ("2.2.6", "2.11.0", "0.26.0", "12.6")
    )
    build = f"cu{cuda.replace('.', '')}"
    return {
        "python": "3.12.11",
        "os": "Ubuntu 24.04.3 LTS, kernel 6.8.0-85-generic x86_64",
        "cuda": cuda,
        "packages": {
            "numpy": numpy,
            "pillow": "11.3.0",
            "safetensors": "0.6.2",
            "torch": f"{torch}+{build}",
            "torchvision": f"{torchvision}+{build}",
            "trainhall": __version__,
            **({"transformers": "4.57.0"} if launch.spec.script is not None else {}),
        },
    }
