"""The digits job written by hand for `torchrun`: the peer of the start-up benchmark.

Prints one line, `first_step <seconds since the epoch>`, from rank 0 after the first optimizer step.
"""

import time

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images / 16.0, dtype=torch.float32)
    y = torch.tensor(labels, dtype=torch.long)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-3)
    batch = 64 // world
    part = slice(rank * batch, (rank + 1) * batch)
    loss = nn.functional.cross_entropy(ddp(x[part]), y[part])
    loss.backward()
    optimizer.step()
    if rank == 0:
        print("first_step", time.time(), flush=True)


def main() -> None:
    dist.init_process_group("gloo")
    train()
    dist.barrier()
    # The model must be gone by now: freeing it after its process group may hang the rank.
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
