"""MNIST and Fashion-MNIST: 28×28 images in ten classes."""

from pathlib import Path
from typing import ClassVar

from torch import nn

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

_FILES = (
    "train-images-idx3-ubyte", "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte",
)  # fmt: skip
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
        if params.download:
            once_a_host(lambda: self._download(params.root))
        root = readable_folder(params.root)
        found = idx.find_files(root, self.dataset, _FILES)
        images, labels, test_images, test_labels = (found[file] for file in _FILES)
        self.train_data = self._read(images, labels)
        self.eval_data = self._read(test_images, test_labels)

    def _download(self, root: str) -> None:
        try:
            getattr(torchvision("datasets"), self.dataset)(root, download=True)
        except (OSError, RuntimeError) as error:
            raise TaskUnavailableError(
                f"{self.dataset} can't be downloaded to {root}: {error}; put its files there "
                "yourself and leave task.params.download out"
            ) from error

    def _read(self, images: Path, labels: Path) -> ImageData:
        """Read both files of a part.

        Raises:
            BadDataError: one is damaged, or they do not fit each other.
        """
        images_NHW, labels_N = idx.read(images, 3), idx.read(labels, 1).long()
        number, *size = images_NHW.shape
        if number == 0:
            raise BadDataError(f"{images} holds no images")
        if size != [_PIXELS, _PIXELS]:
            raise BadDataError(f"{images} holds images of {size[0]}×{size[1]} pixels, not 28×28")
        if len(labels_N) != number:
            raise BadDataError(
                f"{images} holds {number} images, but {labels} {len(labels_N)} labels"
            )
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
