"""A GPT on the bytes of any text."""

import math
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from trainhall.parallelism.declaration import Declaration
from trainhall.training.spec import JobSpec
from trainhall.training.spec.models import gpt, shape_of
from trainhall.training.spec.tasks import LanguageModelParams
from trainhall.training.tasks.base import BadDataError, Task
from trainhall.training.tasks.gpt import GPT
from trainhall.training.tasks.texts import Windows, read_texts

_EVAL_BYTES = 16384
"""Bytes of text that a rank evaluates at once."""


class LanguageModel(Task):
    """Predicts each byte from those before it: the loss is in nats per byte."""

    Params = LanguageModelParams
    metric_names = ("bits_per_byte",)

    def __init__(self, params: LanguageModelParams, job: JobSpec) -> None:
        self.shape = shape_of(params)
        context = self.shape.context
        self.eval_batch_size = max(1, _EVAL_BYTES // context)
        text = read_texts(params.files)
        held = round(len(text) * params.eval_fraction)
        self.train_data = Windows(text[: len(text) - held], context, job.training.seed)
        self.eval_data = Windows(text[len(text) - held :], context)
        for data, purpose in ((self.train_data, "train on"), (self.eval_data, "validate on")):
            if len(data) == 0:
                raise BadDataError(
                    f"task.params.files: {len(text):,} bytes of text are too few to {purpose} "
                    f"with a context of {context}; give more text, or lower task.params.context"
                )

    def build_model(self) -> nn.Module:
        return GPT(self.shape)

    def declaration(self) -> Declaration:
        return gpt(self.shape)

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        inputs_BT, following_BT = batch
        logits_BTV = model(inputs_BT)
        loss = functional.cross_entropy(logits_BTV.flatten(0, 1), following_BT.flatten())
        return loss, (loss.detach() / math.log(2),)
