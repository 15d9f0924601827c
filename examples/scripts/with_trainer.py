"""The parts of Trainhall's own loop in a loop of your own: DDP, bf16, accumulation, clipping.

torchrun --nproc-per-node 2 examples/scripts/with_trainer.py
trainhall submit examples/scripts/with_trainer.yaml -f
"""

import argparse

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import trainhall as th


def loss_fn(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    inputs, labels = batch
    return cross_entropy(model(inputs), labels)


def make_batch(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Points, and the quadrant in which each lies."""
    inputs = torch.randn(64, 2, generator=generator)
    return inputs, (inputs[:, 0] > 0).long() + 2 * (inputs[:, 1] > 0).long()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()

    here = th.init(total_steps=options.steps)
    trainer = th.Trainer(
        nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 4)),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-2),
        precision="bf16",
        gradient_accumulation=4,
        gradient_clip=1.0,
    )
    if (saved := th.checkpoint.load()) is not None:
        trainer.load_state_dict(saved)

    generator = torch.Generator().manual_seed(here.rank)
    while trainer.step < options.steps:
        result = trainer.train_step(make_batch(generator), loss_fn)
        th.report(loss=result.loss, gradient_norm=result.gradient_norm, step=result.step)
        stop = th.should_stop()
        if stop or result.step % 100 == 0:
            th.checkpoint.save(trainer.state_dict(), step=result.step)
        if stop:
            th.leave()


if __name__ == "__main__":
    main()
