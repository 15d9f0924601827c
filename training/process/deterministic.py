"""Kernels that give the same bits each time, for jobs in reproducible mode."""

import os

import torch


def choose_kernels(device: torch.device) -> None:
    """Choose kernels whose bits depend on nothing but their operands, in this process.

    A host's share of its cores depends on how many ranks it has, and some kernels add in an order
    that depends on the number of threads: so there is one. On a GPU an operator that has no
    deterministic kernel raises an error that names it.
    """
    torch.set_num_threads(1)
    if device.type == "cuda":
        # cuBLAS reads it with its first handle (CUDA's "Results reproducibility").
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        torch.use_deterministic_algorithms(True)
        # It would write NaN into whatever is allocated, to show who reads what nobody wrote.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
