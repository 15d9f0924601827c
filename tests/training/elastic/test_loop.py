"""An elastic loop waits for its GPU before it counts a step, tested without one."""

from types import SimpleNamespace

import pytest
import torch

from trainhall.training.elastic.loop import ElasticLoop


@pytest.mark.parametrize(("world_size", "waits"), [(1, 0), (2, 3)])
def test_single_rank_counts_steps_without_waiting(
    monkeypatch: pytest.MonkeyPatch, world_size: int, waits: int
) -> None:
    waited: list[None] = []
    stream = SimpleNamespace(synchronize=lambda: waited.append(None))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: stream)
    confirmed: list[None] = []
    loop = ElasticLoop.__new__(ElasticLoop)
    loop.device, loop.world_size = torch.device("cuda:0"), world_size
    loop.membership = SimpleNamespace(confirm=lambda: confirmed.append(None))  # type: ignore[assignment]
    for _ in range(3):
        loop.confirm()
    assert (len(waited), len(confirmed)) == (waits, 3)
