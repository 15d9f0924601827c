"""Handwritten digits: real data that needs no download."""

import gzip
import importlib.util
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from trainhall.training.data import epoch_order
from trainhall.training.spec import JobSpec
from trainhall.training.spec.tasks import DigitsParams
from trainhall.training.tasks.base import Task, TaskUnavailable, TensorData, mlp

_PIXELS, _CLASSES, _MAX_INK = 64, 10, 16.0


class Digits(Task):
    """An MLP that reads 8×8 images of digits; accuracy is the share read correctly."""

    metric_names = ("accuracy",)

    def __init__(self, spec: JobSpec) -> None:
        assert spec.task is not None
        self.params = cast(DigitsParams, spec.task.parsed_params())
        images_ND, labels_N = load_digits()
        # The same images are held out under every seed, so that jobs can be compared.
        order = torch.from_numpy(epoch_order(len(images_ND), 0, 0, 0, len(images_ND)))
        held_out = min(
            max(1, round(len(images_ND) * self.params.eval_fraction)), len(images_ND) - 1
        )
        self.train_data = TensorData(images_ND[order[held_out:]], labels_N[order[held_out:]])
        self.eval_data = TensorData(images_ND[order[:held_out]], labels_N[order[:held_out]])

    def build_model(self) -> nn.Module:
        return mlp([_PIXELS, *self.params.hidden, _CLASSES], dropout=self.params.dropout)

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        images_BD, labels_B = batch
        logits_BC = model(images_BD)
        accuracy = (logits_BC.argmax(dim=1) == labels_B).float().mean()
        return functional.cross_entropy(logits_BC, labels_B), (accuracy,)


def load_digits() -> tuple[Tensor, Tensor]:
    """Images float32 [1797, 64] in 0…1 and labels int64 [1797], from the file scikit-learn carries.

    Read without importing scikit-learn, which takes 0.7 s and starts threads.

    Raises:
        TaskUnavailable: scikit-learn is not installed, or carries no such file.
    """
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise TaskUnavailable(
            "the digits task reads its images from scikit-learn, which is not installed on this "
            "host; install it with: pip install 'trainhall[train]'"
        )
    path = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    try:
        text = gzip.decompress(path.read_bytes())
    except OSError as error:
        raise TaskUnavailable(
            f"the digits task cannot read {path}: {error}; reinstall it with: "
            "pip install --force-reinstall scikit-learn"
        ) from error
    lines = text.decode("ascii").rstrip().replace("\n", ",")
    # All are whole numbers, which parse five times faster than decimals.
    table = np.fromstring(lines, dtype=np.int16, sep=",").reshape(-1, _PIXELS + 1)
    images = torch.from_numpy(table[:, :_PIXELS].astype(np.float32) / _MAX_INK)
    return images, torch.from_numpy(table[:, _PIXELS].astype(np.int64))
