"""Where a rank of a built-in task stands."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from trainhall.distributed.environment import RankEnvironment
from trainhall.training.link import AttemptFolder, EventSpool, Launch, MetricSpool


@dataclass(frozen=True)
class Place:
    """Where a rank stands: its launch, its folder and its device. The process group is joined."""

    environment: RankEnvironment
    launch: Launch
    folder: AttemptFolder
    device: torch.device
    events: EventSpool
    metrics: MetricSpool
    describe: Callable[[BaseException], str] = str
    """What to say of an exception in a data worker."""
