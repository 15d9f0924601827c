"""Ranks that measure their links, or fail to."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from trainhall.distributed import process_group
from trainhall.distributed.environment import RankEnvironment
from trainhall.distributed.probe import measure_links
from trainhall.distributed.probe_native import ByMessages
from trainhall.training import rank
from trainhall.training.loop import network_probe


def by_messages(folder: Path) -> int:
    """Rank 2 has nobody to exchange with."""
    environment = RankEnvironment.read(os.environ)
    device = torch.device("cpu")
    with process_group.joined(environment, device=device, namespace="probe"):
        exchanges = ByMessages(dist.new_group(), device)
        links = measure_links(exchanges, [[0, 1, 2]], seconds=0.02)
    measured = {str(kind): asdict(link) for kind, link in links.items()}
    (folder / f"{environment.rank}.json").write_text(json.dumps(measured))
    return 0


def failing(_: Path) -> int:
    """As a rank does, but rank 1's probe fails once the others have measured."""

    def measure(*args: Any, **options: Any) -> Any:
        links = measure_links(*args, **options)
        if os.environ["RANK"] == "1":
            raise RuntimeError("planted")
        return links

    with mock.patch.object(network_probe, "measure_links", measure):
        return rank.main()
