"""Under autocast weights are rounded before they are gathered, which changes no bit."""

from pathlib import Path

import torch
from support.cluster.attempts import RankServer


def test_rounded_weights_are_gathered_for_half_the_traffic(
    ranks: RankServer, tmp_path: Path
) -> None:
    assert ranks.call("support.ranks.fsdp:step", 2, tmp_path) == [0, 0]
    results = torch.load(tmp_path / "results.pt")
    loss, gradients, gathered = results["None"]
    rounded_loss, rounded_gradients, rounded = results["torch.bfloat16"]
    assert torch.equal(rounded_loss, loss)
    assert list(rounded_gradients) == list(gradients)
    for name, gradient in gradients.items():
        assert gradient.dtype is torch.float32
        assert torch.equal(rounded_gradients[name], gradient), name
    assert 0.5 < rounded / gathered < 0.51
