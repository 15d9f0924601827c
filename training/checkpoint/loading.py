"""Reading a model out of a checkpoint, without the optimizer and outside a process group."""

from pathlib import Path

from torch import nn

from trainhall.training.checkpoint.format.errors import StateMismatchError
from trainhall.training.checkpoint.state import flatten
from trainhall.training.checkpoint.storage import SafetensorsReader


def load_model(folder: Path, model: nn.Module) -> None:
    """Fill a model with the weights of a checkpoint, every byte of which is verified first.

    Raises:
        BadCheckpointError: the checkpoint is damaged, incomplete or not understood.
        StateMismatchError: it holds another model; it names the first tensor that differs.
    """
    reader = SafetensorsReader(folder)
    wanted = flatten({"model": model.state_dict()}).tensors
    stored = reader.index.metadata.state_dict_metadata
    for name, tensor in wanted.items():
        size = getattr(stored.get(name), "size", None)
        if size != tensor.shape:
            found = "not there" if size is None else f"{list(size)}"
            raise StateMismatchError(f"{folder}: {name} is {found}, not {list(tensor.shape)}")
    reader.read(wanted)
