"""What the ranks of the tests of shared folders run."""

import json
import os
from pathlib import Path

import torch

from trainhall.distributed import process_group
from trainhall.distributed.environment import RankEnvironment
from trainhall.training.sync.shared_storage_check import (
    StorageNotSharedError,
    StorageNotWritableError,
    prove_shared,
)


def prove(folder: str) -> int:
    """Prove that the ranks share what `folders.json` names for each; write the complaint or ""."""
    environment = RankEnvironment.read(os.environ)
    rank = environment.rank
    mine = Path(json.loads((Path(folder) / "folders.json").read_text())[rank])
    message = ""
    with process_group.joined(environment, device=torch.device("cpu"), namespace="t"):
        try:
            prove_shared(mine, process_group.cpu_group(), patience_seconds=0.2)
        except (StorageNotSharedError, StorageNotWritableError) as error:
            message = str(error)
    (Path(folder) / f"error{rank}").write_text(message)
    return 0
