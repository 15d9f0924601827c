"""The digits job written by hand for `torchrun --max-restarts`: the peer of the recovery benchmark.

    torchrun ... torchrun_recovery.py FOLDER EVERY

As one would write it: it saves every EVERY steps and begins where it saved. Each rank notes its pid
in FOLDER, and rank 0 `<restart> <step> <seconds since the epoch>` of every step.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    folder, every = Path(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    restart = os.environ["TORCHELASTIC_RESTART_COUNT"]
    (folder / f"pid-{restart}-{rank}").write_text(str(os.getpid()))
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images / 16.0, dtype=torch.float32)
    y = torch.tensor(labels, dtype=torch.long)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-3)
    saved, step = folder / "saved.pt", 0
    if saved.exists():
        state = torch.load(saved, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    batch = 64 // world
    with (folder / "steps").open("a", buffering=1) as steps:
        while True:
            first = (step * 64 + rank * batch) % (len(x) - batch)
            part = slice(first, first + batch)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(ddp(x[part]), y[part])
            loss.backward()
            optimizer.step()
            step += 1
            if rank == 0:
                steps.write(f"{restart} {step} {time.time()}\n")
                if step % every == 0:
                    state = {
                        "model": model.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "step": step,
                    }
                    torch.save(state, folder / "saving.pt")
                    (folder / "saving.pt").rename(saved)


if __name__ == "__main__":
    main()
