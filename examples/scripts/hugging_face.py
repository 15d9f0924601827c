"""A loop in the style of Hugging Face: the model takes a batch by keywords and returns its loss.

It runs without `transformers`. To train one of its models, replace TinyLanguageModel by, say,
`AutoModelForCausalLM.from_pretrained("gpt2")`.

    torchrun --nproc-per-node 2 examples/scripts/hugging_face.py
    trainhall submit examples/scripts/hugging_face.yaml -f
"""

import argparse
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import trainhall as th

VOCABULARY = 64


@dataclass
class Output:
    loss: Tensor
    logits: Tensor


class TinyLanguageModel(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.recurrent = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, input_ids: Tensor, labels: Tensor) -> Output:
        hidden, _ = self.recurrent(self.embedding(input_ids))
        logits = self.head(hidden)
        # Each position predicts the next one.
        loss = cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return Output(loss, logits)


def make_batch(generator: torch.Generator) -> dict[str, Tensor]:
    """Sequences that count up from a random token."""
    start = torch.randint(VOCABULARY, (16, 1), generator=generator)
    tokens = (start + torch.arange(20)) % VOCABULARY
    return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()

    here = th.init(total_steps=options.steps)
    plain = TinyLanguageModel().to(here.device)
    model = DistributedDataParallel(plain) if here.world_size > 1 else plain
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, options.steps)
    parts = {"model": plain, "optimizer": optimizer, "scheduler": scheduler}

    if (saved := th.checkpoint.load()) is not None:
        for name, part in parts.items():
            part.load_state_dict(saved[name])

    generator = torch.Generator().manual_seed(here.rank)
    for step in range(th.checkpoint.step + 1, options.steps + 1):
        batch = {key: value.to(here.device) for key, value in make_batch(generator).items()}
        loss = model(**batch).loss
        loss.backward()
        norm = nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()

        rate = scheduler.get_last_lr()[0]
        th.report(loss=loss, gradient_norm=norm, learning_rate=rate, step=step)
        stop = th.should_stop()
        if stop or step % 100 == 0:
            th.checkpoint.save({n: part.state_dict() for n, part in parts.items()}, step=step)
        if stop:
            th.leave()


if __name__ == "__main__":
    main()
