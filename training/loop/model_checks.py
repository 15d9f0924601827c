"""Refuses models with state that a checkpoint cannot give back."""

from torch import nn

from trainhall.training.tasks.own import BadTaskError


def refuse_extra_state(model: nn.Module) -> None:
    """Raise BadTaskError for a module with a `get_extra_state`.

    A checkpoint is read into parameters and buffers; no `set_extra_state` would get the rest.
    """
    for module in model.modules():
        kind = type(module)
        if kind.get_extra_state is not nn.Module.get_extra_state:
            raise BadTaskError(
                f"the model keeps extra state (`get_extra_state` of {kind.__qualname__}), which a "
                "checkpoint does not give back; keep it in a buffer (register_buffer)"
            )
