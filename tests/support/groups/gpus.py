"""How many ranks the GPUs of this host can hold."""

import os

import torch

SHARED = os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1"
"""Several ranks may use one GPU: NCCL has that from 2.30 on."""


def can_group(ranks: int) -> bool:
    """Whether so many ranks can form a group over NCCL here."""
    gpus = torch.cuda.device_count()
    return gpus >= ranks or (SHARED and gpus > 0)
