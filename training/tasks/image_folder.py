"""A user's own images, a folder for each class."""

from pathlib import Path
from typing import Any

from torch import nn
from torch.utils.data import Dataset, Subset

from trainhall.parallelism.declaration import Declaration
from trainhall.training.common.sample_order import split_validation
from trainhall.training.spec import JobSpec
from trainhall.training.spec.models import IMAGE_CNN_WIDTHS, declaration_of
from trainhall.training.spec.tasks import ImageFolderParams
from trainhall.training.tasks.base import BadDataError
from trainhall.training.tasks.classifier import Classifier
from trainhall.training.tasks.folders import readable_folder
from trainhall.training.tasks.images import resnet18, small_cnn
from trainhall.training.tasks.vision import torchvision

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and deviation of ImageNet, as is usual for photographs."""
_LARGE = 128
"""From this size on ResNet-18 halves the resolution at once, as it does for ImageNet."""


class ImageFolder(Classifier):
    """A classifier with as many classes as there are folders."""

    Params = ImageFolderParams
    eval_batch_size = 64

    def __init__(self, params: ImageFolderParams, job: JobSpec) -> None:
        self.params = params
        root = readable_folder(params.root)
        varied, plain = _transforms(params)
        if (root / "train").is_dir() and (root / "val").is_dir():
            train, held = Images(root / "train", varied), Images(root / "val", plain)
            if train.classes != held.classes:
                different = sorted({*train.classes} ^ {*held.classes})
                raise BadDataError(
                    f"{root}: train and val do not hold the same classes; {different[0]} is in one "
                    "of them alone"
                )
            self.train_data, self.eval_data = train, held
        else:
            every, again = Images(root, varied), Images(root, plain)
            if len(every) < 2:
                raise BadDataError(
                    f"{root} holds a single image; a part of the images is for validation, so "
                    "give more"
                )
            train_N, held_N = split_validation(len(every), params.eval_fraction)
            self.train_data = Subset(every, train_N.tolist())
            self.eval_data = Subset(again, held_N.tolist())
            train = every
        self._num_classes = len(train.classes)

    def build_model(self) -> nn.Module:
        if self.params.model == "cnn":
            return small_cnn(3, self._num_classes, IMAGE_CNN_WIDTHS, grid=1)
        return resnet18(self._num_classes, small_images=self.params.image_size < _LARGE)

    def declaration(self) -> Declaration:
        return declaration_of(self.params)


class Images(Dataset[tuple[Any, int]]):
    """torchvision's ImageFolder, with errors that name what is wrong."""

    def __init__(self, root: Path, transform: Any) -> None:
        try:
            self._folder = torchvision("datasets").ImageFolder(str(root), transform=transform)
        except FileNotFoundError as error:
            raise BadDataError(
                f"{root} must hold a folder of images for each class: {_first_sentence(error)}"
            ) from error
        except OSError as error:
            raise BadDataError(f"{root} can't be read: {error.strerror}") from error
        self.classes: list[str] = self._folder.classes

    def __len__(self) -> int:
        return len(self._folder)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        try:
            sample: tuple[Any, int] = self._folder[index]
        except Exception as error:  # Pillow has no common one
            path = self._folder.samples[index][0]
            # Pillow says it of the open file, whose path comes first here.
            reason = str(error).replace(repr(path), "it")
            raise BadDataError(
                f"{path} is not a readable image ({type(error).__name__}: {reason}); repair "
                "or remove it"
            ) from error
        return sample


def _first_sentence(error: Exception) -> str:
    return str(error).partition(". ")[0]


def _transforms(params: ImageFolderParams) -> tuple[Any, Any]:
    """Return the transforms of training images, and of validation images."""
    v2 = torchvision("transforms.v2")
    size = params.image_size
    to_tensor = torchvision("transforms").ToTensor()
    normal = v2.Normalize(_MEAN, _STD)
    whole = [v2.Resize(size), v2.CenterCrop(size)]
    varied = [v2.RandomResizedCrop(size, scale=(0.35, 1.0)), v2.RandomHorizontalFlip()]
    plain = v2.Compose([*whole, to_tensor, normal])
    return (v2.Compose([*varied, to_tensor, normal]) if params.augment else plain), plain
