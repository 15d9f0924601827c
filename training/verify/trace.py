"""What a run computed, step by step, in float64, so that two strategies can be compared.

In float32 the order of additions alone makes runs differ by more than many bugs would; in float64
it does not.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from trainhall.training.batches import mapped
from trainhall.training.link import Command
from trainhall.training.loop import Loop, Place


@dataclass
class Trace:
    """The numbers of a run, equal on all ranks."""

    losses: list[float] = field(default_factory=list)
    """Mean over the global batch, by step."""
    norms: list[float] = field(default_factory=list)
    """Global gradient norm before clipping, by step."""
    gradients: list[dict[str, Tensor]] = field(default_factory=list)
    """The whole gradient by parameter, before clipping, by step."""
    weights: dict[str, Tensor] = field(default_factory=dict)
    """The whole floating-point state after the last step."""

    def save(self, path: Path) -> None:
        tensors = {
            "losses": torch.tensor(self.losses, dtype=torch.float64),
            "norms": torch.tensor(self.norms, dtype=torch.float64),
        }
        for step, gradients in enumerate(self.gradients):
            tensors |= {f"gradients/{step}/{name}": g for name, g in gradients.items()}
        tensors |= {f"weights/{name}": w for name, w in self.weights.items()}
        # Tied weights share their memory, which the format refuses.
        save_file({name: tensor.clone().contiguous() for name, tensor in tensors.items()}, path)

    @classmethod
    def load(cls, path: Path) -> "Trace":
        tensors = load_file(path)
        trace = cls(tensors.pop("losses").tolist(), tensors.pop("norms").tolist())
        trace.gradients = [{} for _ in trace.losses]
        for name, tensor in tensors.items():
            kind, _, rest = name.partition("/")
            if kind == "weights":
                trace.weights[rest] = tensor
            else:
                step, _, parameter = rest.partition("/")
                trace.gradients[int(step)][parameter] = tensor
        return trace


def trace(place: Place) -> Trace:
    """Train as the launch says, in float64; all ranks of the joined process group call it.

    Held-out data are left alone, and no checkpoint is saved.
    """
    torch.set_default_dtype(torch.float64)
    return _TracedLoop(place).traced()


class _TracedLoop(Loop):
    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._trace = Trace()
        self._clip = self.strategy.clip
        self.strategy.clip = self._observed_clip  # type: ignore[method-assign]

    def traced(self) -> Trace:
        while self.state.step < self.total_steps:
            self.train_step()
            rows = self.recorder.rows()
            beat = self.pulse.beat(
                self.state.step, rows, seconds=self.recorder.seconds_column,
                command=Command.RUN, save=False, peak_memory_bytes=0.0,
            )  # fmt: skip
            columns = self.recorder.write(beat)
            self._trace.losses += columns["loss"]
            self._trace.norms += columns["gradient_norm"]
        self.strategy.share_buffers()
        self._trace.weights = {
            name: weight.detach().clone()
            for name, weight in self.strategy.whole_weights()
            if weight.is_floating_point()
        }
        return self._trace

    def batches(self) -> Iterator[Any]:
        for batch in super().batches():
            yield mapped(batch, _as_float64)

    def _observed_clip(self, largest: float | None) -> Tensor:
        whole = {name: g.clone() for name, g in self.strategy.whole_gradients()}
        self._trace.gradients.append(whole)
        return self._clip(largest)


def _as_float64(leaf: Any) -> Any:
    floating = isinstance(leaf, Tensor) and leaf.is_floating_point()
    return leaf.double() if floating else leaf
