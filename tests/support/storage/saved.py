"""What is in a checkpoint."""

from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor


def tensors_of(checkpoint: Path) -> dict[str, Tensor]:
    """All that its files hold, by their names there."""
    files = sorted(checkpoint.glob("*.safetensors"))
    return {name: tensor for file in files for name, tensor in load_file(file).items()}
