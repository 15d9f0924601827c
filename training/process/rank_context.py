"""The context of a rank of a built-in task."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from trainhall.distributed.environment import RankEnvironment
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.launch import Launch
from trainhall.training.link.spool import EventSpool, MetricSpool


@dataclass(frozen=True)
class RankContext:
    """A rank's launch, folder and device. The process group is joined."""

    environment: RankEnvironment
    launch: Launch
    folder: AttemptFolder
    device: torch.device
    events: EventSpool
    metrics: MetricSpool
    describe: Callable[[BaseException], str] = str
    """Describes an exception in a data worker."""
