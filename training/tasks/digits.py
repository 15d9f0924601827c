"""Handwritten digits: real data that needs no download."""

import gzip
import importlib.util
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from trainhall.parallelism.declaration import Declaration
from trainhall.training.common.sample_order import split_validation
from trainhall.training.spec import JobSpec
from trainhall.training.spec.models import declaration_of
from trainhall.training.spec.tasks import DigitsParams
from trainhall.training.tasks.base import TaskUnavailableError, TensorData, mlp
from trainhall.training.tasks.classifier import Classifier

_PIXELS, _CLASSES, _MAX_INK = 64, 10, 16.0


class Digits(Classifier):
    """An MLP that reads 8×8 images of digits."""

    Params = DigitsParams

    def __init__(self, params: DigitsParams, job: JobSpec) -> None:
        self.params = params
        images_ND, labels_N = load_digits()
        train, validation = split_validation(len(images_ND), params.eval_fraction)
        self.train_data = TensorData(images_ND[train], labels_N[train])
        self.eval_data = TensorData(images_ND[validation], labels_N[validation])

    def build_model(self) -> nn.Module:
        return mlp([_PIXELS, *self.params.hidden, _CLASSES], dropout=self.params.dropout)

    def declaration(self) -> Declaration:
        return declaration_of(self.params)


def load_digits() -> tuple[Tensor, Tensor]:
    """Read images float32 [1797, 64] in 0…1 and labels int64 [1797] from scikit-learn's file.

    It does so without importing scikit-learn, which takes 0.7 s and starts threads.

    Raises:
        TaskUnavailableError: scikit-learn is not installed, or carries no such file.
    """
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise TaskUnavailableError(
            "the digits task reads its images from scikit-learn, which is not installed on this "
            "host; install it with: pip install 'trainhall[train]'"
        )
    path = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    try:
        text = gzip.decompress(path.read_bytes())
    except OSError as error:
        raise TaskUnavailableError(
            f"the digits task cannot read {path}: {error}; reinstall it with: "
            "pip install --force-reinstall scikit-learn"
        ) from error
    lines = text.decode("ascii").rstrip().replace("\n", ",")
    # All are whole numbers, which parse five times faster than decimals.
    table = np.fromstring(lines, dtype=np.int16, sep=",").reshape(-1, _PIXELS + 1)
    images = torch.from_numpy(table[:, :_PIXELS].astype(np.float32) / _MAX_INK)
    return images, torch.from_numpy(table[:, _PIXELS].astype(np.int64))
