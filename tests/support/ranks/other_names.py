"""Ranks of hosts whose disks hold different checkpoints of their job."""

import os
from pathlib import Path

from trainhall.training import rank
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.launch import Launch

READ = rank.read_launch


def rank_1_has_none(path: Path) -> int:
    """Rank 1 stands for a host that has saved nothing."""

    def read(folder: AttemptFolder, generation: int) -> Launch:
        launch = READ(folder, generation)
        if os.environ["RANK"] != "1":
            return launch
        plan = launch.checkpoint.model_copy(update={"resume": []})
        return launch.model_copy(update={"checkpoint": plan})

    rank.read_launch = read
    return rank.main()
