"""Lightning Fabric under Trainhall: Fabric spreads the model, Trainhall runs the job.

The nodes need `pip install lightning-fabric`.

    torchrun --nproc-per-node 2 examples/scripts/fabric.py
    trainhall submit examples/scripts/fabric.yaml -f
"""

import argparse
import os

import torch
from lightning_fabric import Fabric
from torch import nn
from torch.nn.functional import mse_loss

import trainhall as th


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()

    # Fabric joins the process group itself.
    here = th.init(total_steps=options.steps, join=False)
    fabric = Fabric(
        accelerator="cuda" if torch.cuda.is_available() else "cpu",
        devices=here.local_world_size,
        num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", "1")),
    )
    fabric.launch()
    fabric.seed_everything(here.rank, verbose=False)
    plain = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-2)
    model, optimizer = fabric.setup(plain, optimizer)

    if (saved := th.checkpoint.load()) is not None:
        plain.load_state_dict(saved["model"])

    for step in range(th.checkpoint.step + 1, options.steps + 1):
        inputs = torch.randn(64, 8, device=fabric.device)
        loss = mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True).sin())
        optimizer.zero_grad()
        fabric.backward(loss)
        optimizer.step()

        th.report(loss=loss, step=step)
        stop = th.should_stop()
        if stop:
            th.checkpoint.save({"model": plain.state_dict()}, step=step)
            th.leave()


if __name__ == "__main__":
    main()
