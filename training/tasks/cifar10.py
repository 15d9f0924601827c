"""CIFAR-10: 32×32 colour images in ten classes."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from trainhall.parallelism.declaration import Declaration
from trainhall.training.spec import JobSpec
from trainhall.training.spec.models import declaration_of
from trainhall.training.spec.tasks import Cifar10Params
from trainhall.training.tasks.base import BadDataError, TaskUnavailableError
from trainhall.training.tasks.classifier import Classifier
from trainhall.training.tasks.downloads import once_a_host
from trainhall.training.tasks.folders import readable_folder
from trainhall.training.tasks.images import ImageData, resnet18
from trainhall.training.tasks.vision import torchvision

_CLASSES = 10
_MEAN, _STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
_BORDER = 4
_RECORD = 1 + 3 * 32 * 32
_PICKLED, _BINARY = "cifar-10-batches-py", "cifar-10-batches-bin"


class Cifar10(Classifier):
    """ResNet-18 for small images."""

    Params = Cifar10Params

    def __init__(self, params: Cifar10Params, job: JobSpec) -> None:
        self.params = params
        if params.download:
            once_a_host(lambda: _download(params.root))
        root = readable_folder(params.root)
        self.train_data = _read(
            root, train=True, border=_BORDER if params.augment else 0, seed=job.training.seed
        )
        self.eval_data = _read(root, train=False)

    def build_model(self) -> nn.Module:
        return resnet18(_CLASSES, small_images=True)

    def declaration(self) -> Declaration:
        return declaration_of(self.params)


def _download(root: str) -> None:
    try:
        torchvision("datasets").CIFAR10(root, download=True)
    except (OSError, RuntimeError) as error:
        raise TaskUnavailableError(
            f"CIFAR-10 can't be downloaded to {root}: {error}; put {_PICKLED} there yourself and "
            "leave task.params.download out"
        ) from error


def _read(root: Path, *, train: bool, border: int = 0, seed: int = 0) -> ImageData:
    """Read the training or the test images.

    Raises:
        BadDataError: they are not there, or not as they were published.
    """
    if (root / _BINARY).is_dir():
        images, labels = _read_binary(root / _BINARY, train=train)
    elif (root / _PICKLED).is_dir():
        images, labels = _read_pickled(root, train=train)
    else:
        raise BadDataError(
            f"task.params.root: {root} holds neither {_PICKLED} nor {_BINARY}; give the folder "
            "that holds one of them, or set task.params.download"
        )
    return ImageData(
        torch.from_numpy(images),
        torch.from_numpy(labels),
        mean=_MEAN,
        std=_STD,
        border=border,
        seed=seed,
    )


def _read_pickled(root: Path, *, train: bool) -> tuple[Any, Any]:
    """Read with torchvision, which compares the published checksums before it unpickles."""
    try:
        data = torchvision("datasets").CIFAR10(str(root), train=train)
    except (RuntimeError, OSError) as error:
        raise BadDataError(
            f"{root / _PICKLED} is not CIFAR-10 as it was published: {error}; remove the folder "
            "and set task.params.download, or give the binary version"
        ) from error
    return data.data.transpose(0, 3, 1, 2).copy(), np.asarray(data.targets, dtype=np.int64)


def _read_binary(folder: Path, *, train: bool) -> tuple[Any, Any]:
    """Read records of a label and 3×32×32 bytes."""
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] if train else ["test_batch.bin"]
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise BadDataError(
            f"{folder} does not have {', '.join(missing)}; download CIFAR-10's binary version again"
        )
    records = np.concatenate([_records(folder / name) for name in names])
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64)


def _records(path: Path) -> Any:
    data = np.fromfile(path, dtype=np.uint8)
    if len(data) == 0 or len(data) % _RECORD:
        raise BadDataError(
            f"{path} has {len(data):,} bytes, not a multiple of {_RECORD:,} (a label and 3×32×32 "
            "pixels); fetch it again"
        )
    records = data.reshape(-1, _RECORD)
    if (largest := int(records[:, 0].max())) >= _CLASSES:
        raise BadDataError(f"{path} holds the label {largest}; labels are 0 to 9")
    return records
