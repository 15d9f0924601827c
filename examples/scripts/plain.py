"""A script for `torchrun`, without any code of Trainhall.

torchrun --nproc-per-node 2 examples/scripts/plain.py --steps 200
trainhall submit examples/scripts/plain.yaml -f
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel


def train(steps: int) -> None:
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    for step in range(1, steps + 1):
        inputs = torch.randn(64, 8)
        loss = mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True).sin())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and step % 50 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    train(options.steps)
    dist.barrier()  # Gloo may abort a rank whose peer leaves during its last step
    # The model must be gone by now: freeing it after its process group may hang the rank.
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
