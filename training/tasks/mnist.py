"""MNIST and Fashion-MNIST: 28×28 images in ten classes, read by torchvision."""

import tempfile
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from trainhall.parallelism.declaration import Declaration
from trainhall.training.spec import JobSpec
from trainhall.training.spec.models import MNIST_CNN_WIDTHS, MNIST_HIDDEN, declaration_of
from trainhall.training.spec.tasks import FashionMnistParams, MnistParams
from trainhall.training.tasks import idx
from trainhall.training.tasks.base import BadDataError, TaskUnavailableError, mlp
from trainhall.training.tasks.classifier import Classifier
from trainhall.training.tasks.downloads import once_a_host
from trainhall.training.tasks.folders import readable_folder
from trainhall.training.tasks.images import ImageData, small_cnn
from trainhall.training.tasks.vision import torchvision

_PARTS = ("train", "t10k")
_FILES = tuple(f"{part}-{kind}-ubyte" for part in _PARTS for kind in ("images-idx3", "labels-idx1"))
_CLASSES, _PIXELS = 10, 28


class Mnist(Classifier):
    """An MLP or a small CNN that classifies 28×28 images into ten classes."""

    Params = MnistParams
    eval_batch_size = 1024

    dataset: ClassVar[str] = "MNIST"
    """torchvision's class, and the folder below the root."""
    mean: ClassVar[float] = 0.1307
    std: ClassVar[float] = 0.3081

    def __init__(self, params: MnistParams, job: JobSpec) -> None:
        self.params = params
        kind = getattr(torchvision("datasets"), self.dataset)
        if params.download:
            once_a_host(lambda: self._download(params.root, kind))
        root = readable_folder(params.root)
        files = idx.find_files(root, self.dataset, _FILES)
        # torchvision reads plain files at one place; these may be packed, or elsewhere.
        with tempfile.TemporaryDirectory(prefix="trainhall-data-") as folder:
            raw = Path(folder) / self.dataset / "raw"
            raw.mkdir(parents=True)
            for part in _PARTS:
                _put(files, raw, part)
            self.train_data = self._read(kind(folder, train=True), files[_FILES[1]])
            self.eval_data = self._read(kind(folder, train=False), files[_FILES[3]])

    def _download(self, root: str, kind: type) -> None:
        try:
            kind(root, download=True)
        except (OSError, RuntimeError) as error:
            raise TaskUnavailableError(
                f"{self.dataset} can't be downloaded to {root}: {error}; put its files there "
                "yourself and leave task.params.download out"
            ) from error

    def _read(self, data: "torch.utils.data.Dataset[object]", labels: Path) -> ImageData:
        images_NHW: Tensor = data.data  # type: ignore[attr-defined] # torchvision has no types
        labels_N: Tensor = data.targets  # type: ignore[attr-defined]
        if int(labels_N.max()) >= _CLASSES:
            raise BadDataError(f"{labels} holds the label {int(labels_N.max())}; labels are 0 to 9")
        return ImageData(images_NHW[:, None], labels_N, mean=[self.mean], std=[self.std])

    def build_model(self) -> nn.Module:
        if self.params.model == "mlp":
            return nn.Sequential(nn.Flatten(), mlp([_PIXELS**2, MNIST_HIDDEN, _CLASSES]))
        return small_cnn(1, _CLASSES, MNIST_CNN_WIDTHS, grid=7)

    def declaration(self) -> Declaration:
        return declaration_of(self.params)


class FashionMnist(Mnist):
    """The same on pictures of clothes."""

    Params = FashionMnistParams
    dataset = "FashionMNIST"
    mean = 0.2860
    std = 0.3530


def _put(files: dict[str, Path], raw: Path, part: str) -> None:
    """Put both files of a part into `raw`, when they are whole and fit each other.

    Raises:
        BadDataError: they are not, or do not.
    """
    images, labels = (f"{part}-{kind}-ubyte" for kind in ("images-idx3", "labels-idx1"))
    number, *size = idx.unpack_checked(files[images], raw / images, 3)
    (labelled,) = idx.unpack_checked(files[labels], raw / labels, 1)
    if number == 0:
        raise BadDataError(f"{files[images]} holds no images")
    if size != [_PIXELS, _PIXELS]:
        raise BadDataError(f"{files[images]} holds images of {size[0]}×{size[1]} pixels, not 28×28")
    if labelled != number:
        raise BadDataError(
            f"{files[images]} holds {number} images, but {files[labels]} {labelled} labels"
        )
