"""A script's checkpoints: nested states, saved as those of tasks are, loaded without a template."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from trainhall.training.checkpoint.checkpointer import Checkpointer
from trainhall.training.checkpoint.format.draft import Committed
from trainhall.training.checkpoint.format.errors import StateMismatchError
from trainhall.training.checkpoint.format.manifest import Manifest
from trainhall.training.checkpoint.index import Index
from trainhall.training.checkpoint.loader import Loaded
from trainhall.training.checkpoint.state import escaped
from trainhall.training.fencing import FencingToken
from trainhall.training.sdk.together import barrier
from trainhall.training.sync.shared_storage_check import prove_shared

_STATE = "state"
_SHAPE = "shape"


class Checkpoints:
    """One rank's side of them. Rank 0's state is what is saved; all ranks load the same.

    Args:
        resume: names of checkpoints to start from, best first.
        lacking: of better ones that are not among them, why not.
        shared_by_hosts: several hosts save to the same folder, which is proven first.
        committed: called on rank 0, in the background, for each checkpoint.
        not_saved: called for each that could not be, on the ranks that know of it, rank 0 at
            least: its step, and why in words.
    """

    def __init__(
        self,
        folder: Path,
        token: FencingToken,
        resume: list[str],
        lacking: dict[str, str],
        group: Any,
        *,
        shared_by_hosts: bool,
        committed: Callable[[Committed], None],
        not_saved: Callable[[int, str], None],
    ) -> None:
        if shared_by_hosts and group is not None:
            prove_shared(folder, group)
        self._resume = resume
        self._lacking = lacking
        self._group = group
        self._not_saved = not_saved
        self._checkpointer = Checkpointer(folder, token, group, committed, on_error=self._failed)
        self.saved_step: int | None = None

    def save(self, state: dict[str, Any], step: int, metrics: dict[str, float]) -> None:
        """Begin to save; the caller may change its tensors as soon as this returns.

        Raises:
            TypeError: the state holds what a checkpoint cannot.
        """
        if not isinstance(state, dict):
            raise TypeError(f"a state is a dict, not {type(state).__name__}")
        self._checkpointer.wait()
        if step == self.saved_step and self._checkpointer.error is None:
            return
        extra = {_SHAPE: _shape(state)}
        self._checkpointer.save(step, {_STATE: state, "extra": extra}, metrics)
        self.saved_step = step

    def finish(self) -> None:
        """Wait for the last save; see `Checkpointer.finish`."""
        self._checkpointer.finish()
        barrier(self._group)

    def load(self) -> tuple[dict[str, Any], Loaded] | None:
        """Load the state of the first good checkpoint, on the CPU; None when there is none to load.

        Raises:
            NoGoodCheckpointError: none of them is good.
            StateMismatchError: the first good one was not saved by a script.
        """
        made: list[dict[str, Any]] = []

        def make(manifest: Manifest, index: Index) -> dict[str, Any]:
            made.append({_STATE: _empty(manifest, index)})
            return made[-1]

        loaded = self._checkpointer.load(self._resume, make, lacking=self._lacking)
        return None if loaded is None else (made[-1][_STATE], loaded)

    def _failed(self, error: Exception) -> None:
        step, why = self._checkpointer.saving_step, self._checkpointer.error
        self._not_saved(step, f"the checkpoint of step {step} was not saved: {why}")


def _shape(node: Any) -> Any:
    """Describe the nesting of containers as JSON; keys of dicts keep their type. A leaf is null."""
    match node:
        case Mapping():
            return {"dict": [[key, _shape(item)] for key, item in node.items()]}
        case list():
            return {"list": [_shape(item) for item in node]}
        case tuple():
            return {"tuple": [_shape(item) for item in node]}
    return None


def _empty(manifest: Manifest, index: Index) -> Any:
    """Return a state of the saved shape, its tensors allocated and its values not yet filled in."""
    shape = manifest.extra.get(_SHAPE)
    if shape is None:
        raise StateMismatchError(
            f"{manifest.name} was not saved by trainhall.checkpoint.save(), so there is no state "
            "that trainhall.checkpoint.load() could return"
        )
    tensors = index.metadata.state_dict_metadata

    def build(node: Any, name: str) -> Any:
        if node is None:
            entry: Any = tensors.get(name)
            return None if entry is None else torch.empty(entry.size, dtype=entry.properties.dtype)
        ((kind, items),) = node.items()
        if kind == "dict":
            return {key: build(item, f"{name}/{escaped(key)}") for key, item in items}
        parts = [build(item, f"{name}/{i}") for i, item in enumerate(items)]
        return tuple(parts) if kind == "tuple" else parts

    return build(shape, _STATE)
