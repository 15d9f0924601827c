"""The results of one step of a run, whole, in host memory or in a file."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor


@dataclass
class Snapshot:
    """The numbers of a step, equal on all ranks."""

    step: int
    """From 1."""
    loss: float
    """Mean over the global batch."""
    norm: float
    """Global gradient norm before clipping."""
    gradients: Mapping[str, Tensor]
    """By parameter, before clipping."""
    weights: Mapping[str, Tensor]
    """The floating-point state after the step, buffers included."""


class Reference:
    """A folder with the snapshots of a run, a file a step."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def begin(
        self, names: Sequence[str], backward_order: Sequence[str], *, batch_norm: bool
    ) -> None:
        """Write down the orders of the model's weights, and whether batch norm is in it.

        Args:
            backward_order: the names of the gradients as the backward pass reached them.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        model = {"names": names, "backward_order": backward_order, "batch_norm": batch_norm}
        (self._folder / "model.json").write_text(json.dumps(model))

    def model(self) -> dict[str, Any]:
        """Return what `begin` was given, by the names of its arguments."""
        model: dict[str, Any] = json.loads((self._folder / "model.json").read_text())
        return model

    def write(self, snapshot: Snapshot) -> None:
        tensors = {
            "loss": torch.tensor(snapshot.loss, dtype=torch.float64),
            "norm": torch.tensor(snapshot.norm, dtype=torch.float64),
        }
        tensors |= {f"gradient/{name}": g for name, g in snapshot.gradients.items()}
        tensors |= {f"weight/{name}": w for name, w in snapshot.weights.items()}
        save_file(tensors, self._path(snapshot.step))

    def read(self, step: int) -> Snapshot:
        tensors = load_file(self._path(step))
        kinds: dict[str, dict[str, Tensor]] = {"gradient": {}, "weight": {}}
        for key, tensor in tensors.items():
            kind, _, name = key.partition("/")
            if name:
                kinds[kind][name] = tensor
        return Snapshot(
            step,
            float(tensors["loss"]),
            float(tensors["norm"]),
            kinds["gradient"],
            kinds["weight"],
        )

    def _path(self, step: int) -> Path:
        return self._folder / f"{step:06}.safetensors"
