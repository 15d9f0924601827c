"""Refuses models with state that a checkpoint cannot give back."""

from torch import nn

from trainhall.training.tasks.own import BadTaskError


def refuse_extra_state(model: nn.Module) -> None:
    """
    Raises:
        BadTaskError: a module has a `get_extra_state`. What a checkpoint is read into are the
            tensors of parameters and buffers; nobody would hand the rest to `set_extra_state`.
    """
    for module in model.modules():
        kind = type(module)
        if kind.get_extra_state is not nn.Module.get_extra_state:
            raise BadTaskError(
                f"the model keeps extra state (`get_extra_state` of {kind.__qualname__}), which a "
                "checkpoint does not give back; keep it in a buffer (register_buffer)"
            )
