"""GPU of a rank."""

import torch


class GpuMissingError(RuntimeError):
    """A rank was given a GPU, and torch sees none."""


def own_gpu(local_rank: int) -> torch.device:
    """Return this rank's GPU, made the current one.

    A launcher shows a rank either all GPUs of the attempt on this host, or its own alone.
    """
    device = torch.device("cuda", local_rank if torch.cuda.device_count() > 1 else 0)
    torch.cuda.set_device(device)
    return device
