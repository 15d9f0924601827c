"""Writes text with a language model from its checkpoint.

    python -m trainhall.training.sample FOLDER [--prompt TEXT] [--length N] [--temperature T]

The text goes to standard output byte by byte; an error is one line on standard error, with exit
code 1. `trainhall sample` starts this, since the command line needs no torch.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import torch
from torch import nn

from trainhall.training.checkpoint.format.errors import CheckpointError
from trainhall.training.checkpoint.format.manifest import read_manifest
from trainhall.training.checkpoint.loading import load_model
from trainhall.training.checkpoint.state import from_json
from trainhall.training.spec import TaskSpec
from trainhall.training.spec.models import shape_of
from trainhall.training.spec.tasks import LanguageModelParams
from trainhall.training.tasks.gpt import GPT

_NUM_BYTES = 256
_FEW_PARAMETERS = 16_000_000
"""Up to here one thread writes as fast as several: they would mostly wait for each other, which on
a busy host takes many times the time."""


class NoLanguageModelError(ValueError):
    """The checkpoint holds another kind of model."""


def read_model(folder: Path) -> GPT:
    """Read the decoder of a checkpoint, with its weights, in evaluation mode.

    Raises:
        CheckpointError: the folder is no checkpoint, is damaged, or does not fit the model.
        NoLanguageModelError: it is of another task.
    """
    kept = from_json(read_manifest(folder).extra).get("task")
    if kept is None or kept["name"] != "language_model":
        description = "a script's job" if kept is None else f"the task {kept['name']}"
        raise NoLanguageModelError(
            f"{folder.name} is of {description}; only the task language_model generates text"
        )
    params = TaskSpec.model_validate(kept).parsed_params()
    model = GPT(shape_of(cast(LanguageModelParams, params)))
    load_model(folder, model)
    return model.eval()


def num_threads(model: GPT) -> int:
    """Return the threads that generate text: OMP_NUM_THREADS where it is given."""
    if os.environ.get("OMP_NUM_THREADS"):
        return torch.get_num_threads()
    few = sum(p.numel() for p in model.parameters()) <= _FEW_PARAMETERS
    return 1 if few else torch.get_num_threads()


@torch.inference_mode()
def continuation(
    model: GPT, prompt: bytes, length: int, *, temperature: float, generator: torch.Generator
) -> Iterator[int]:
    """Yield `length` bytes that follow `prompt`, each drawn given those before it.

    Args:
        temperature: divides the logits; 0 takes the likeliest byte each time.
    """
    # A text begins after a line break.
    tokens = list(prompt or b"\n")
    for _ in range(length):
        seen_1T = torch.tensor([tokens[-model.shape.context :]])
        # Further rows of the embedding stand for no byte.
        logits_V = model(seen_1T)[0, -1, :_NUM_BYTES].float()
        if temperature == 0:
            following = int(logits_V.argmax())
        else:
            probabilities_V = nn.functional.softmax(logits_V / temperature, dim=0)
            following = int(torch.multinomial(probabilities_V, 1, generator=generator))
        tokens.append(following)
        yield following


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m trainhall.training.sample")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--prompt", default="")
    parser.add_argument("--length", type=int, default=500)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    try:
        model = read_model(options.folder)
    except (CheckpointError, NoLanguageModelError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    torch.set_num_threads(num_threads(model))
    prompt = options.prompt.encode("utf-8", "surrogateescape")
    text = continuation(
        model,
        prompt,
        options.length,
        temperature=options.temperature,
        generator=torch.Generator().manual_seed(options.seed),
    )
    try:
        _write(prompt, text)
    except BrokenPipeError:
        # The reader left (`| head`); the interpreter's own flush must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _write(prompt: bytes, text: Iterator[int]) -> None:
    output = sys.stdout.buffer
    output.write(prompt)
    for byte in text:
        output.write(bytes([byte]))
        output.flush()
    output.write(b"\n")
    output.flush()


if __name__ == "__main__":
    sys.exit(main())
