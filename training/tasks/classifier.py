"""The base of classifiers."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainhall.training.tasks.base import Task


class Classifier(Task):
    """Cross-entropy over classes; accuracy is the share of samples whose class is found."""

    metric_names = ("accuracy",)

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        inputs, labels_B = batch
        logits_BC = model(inputs)
        accuracy = (logits_BC.argmax(dim=1) == labels_B).mean(dtype=torch.float32)
        return functional.cross_entropy(logits_BC, labels_B), (accuracy,)
