"""What a model allows: declared beside the model, without torch, so that a job is judged early."""

from dataclasses import dataclass

Layer = tuple[str, ...]
"""Names of modules (as in `nn.Module.get_submodule`) that run one after the other."""


@dataclass(frozen=True)
class Declaration:
    """How a plain model may be spread over ranks. What it leaves out, the model cannot do."""

    layers: tuple[Layer, ...] = ()
    """The model's layers in the order in which its forward pass runs them, each with weights of its
    own. `fsdp` gathers the weights of one of them at a time."""
