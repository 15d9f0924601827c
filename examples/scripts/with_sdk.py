"""The same script with Trainhall's SDK: live curves, pause and resume, checkpoints.

torchrun --nproc-per-node 2 examples/scripts/with_sdk.py
python examples/scripts/with_sdk.py
trainhall submit examples/scripts/with_sdk.yaml -f
"""

import argparse
import time

import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

import trainhall as th


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--pace", type=float, default=0.0, help="seconds to idle in a step")
    parser.add_argument("--checkpoints", help="folder for checkpoints outside Trainhall")
    options = parser.parse_args()

    here = th.init(total_steps=options.steps, checkpoints=options.checkpoints)
    torch.manual_seed(here.rank)
    plain = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1)).to(here.device)
    model = DistributedDataParallel(plain) if here.world_size > 1 else plain
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-2)

    def state() -> dict[str, object]:
        return {"model": plain.state_dict(), "optimizer": optimizer.state_dict()}

    if (saved := th.checkpoint.load()) is not None:
        plain.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])

    for step in range(th.checkpoint.step + 1, options.steps + 1):
        # The data follow from step and rank: a resumed run continues with those of its next step.
        seeded = torch.Generator().manual_seed(step * here.world_size + here.rank)
        inputs = torch.randn(64, 8, generator=seeded).to(here.device)
        loss = mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True).sin())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(options.pace)

        th.report(loss=loss, step=step)
        stop = th.should_stop()
        if stop or step % 100 == 0:
            th.checkpoint.save(state(), step=step)
        if stop:
            th.leave()


if __name__ == "__main__":
    main()
