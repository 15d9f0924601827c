"""Seeds, and a rank's random state as it goes into a checkpoint and back."""

import base64
import hashlib
import random
from typing import Any

import numpy as np
import torch


def derive_seed(seed: int, *path: int | str) -> int:
    """Return a seed below 2^63 for one use of the job's seed; uses with different paths are
    unrelated."""
    text = ":".join(str(part) for part in (seed, *path))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def seed_everything(seed: int) -> None:
    """Seed Python, numpy and torch (every device)."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def seed_sample(word: int) -> None:
    """Seed what a sample is drawn with: Python, numpy, and torch on the host, in some 20 µs."""
    random.seed(word)
    np.random.seed(word % 2**32)
    torch.default_generator.manual_seed(word >> 1)


def capture(device: torch.device) -> dict[str, Any]:
    """Return the state of this rank's generators as plain JSON data, about 10 KB."""
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    state = {
        "python": [version, _pack(np.asarray(words, dtype="<u8")), gauss],
        "numpy": [
            name,
            _pack(np.asarray(keys, dtype="<u4")),
            int(position),
            int(has_gauss),
            float(cached),
        ],
        "torch": _pack(torch.get_rng_state().numpy()),
    }
    if device.type == "cuda":
        state["cuda"] = _pack(torch.cuda.get_rng_state(device).numpy())
    return state


def restore(state: dict[str, Any], device: torch.device) -> None:
    """Continue where `capture` was called."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(_unpack(words, "<u8").tolist()), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, _unpack(keys, "<u4"), position, has_gauss, cached))
    torch.set_rng_state(_byte_tensor(state["torch"]))
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(_byte_tensor(state["cuda"]), device)


def _pack(values: np.ndarray[Any, Any]) -> str:
    return base64.b64encode(values.tobytes()).decode()


def _unpack(text: str, dtype: str) -> np.ndarray[Any, Any]:
    return np.frombuffer(base64.b64decode(text), dtype=dtype)


def _byte_tensor(text: str) -> torch.Tensor:
    return torch.from_numpy(_unpack(text, "u1").copy())
