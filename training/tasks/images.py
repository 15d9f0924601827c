"""Images in memory, and models that classify images."""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from trainhall.training.common.sample_order import sample_words
from trainhall.training.tasks.vision import torchvision


class ImageData:
    """Images uint8 [N, C, H, W] with their labels, normalised when they are read.

    With `border`, each is moved by up to so many pixels and every other one is mirrored, as He et
    al. train on CIFAR-10 (arXiv:1512.03385): how is a function of the seed, epoch and sample.
    """

    def __init__(
        self,
        images_NCHW: Tensor,
        labels_N: Tensor,
        *,
        mean: Sequence[float],
        std: Sequence[float],
        border: int = 0,
        seed: int = 0,
    ) -> None:
        self.images_NCHW = images_NCHW
        self.labels_N = labels_N
        self._mean_C11 = torch.tensor(mean).view(-1, 1, 1)
        self._std_C11 = torch.tensor(std).view(-1, 1, 1)
        self._border = border
        self._seed = seed
        self._epoch = 0

    def __len__(self) -> int:
        return len(self.images_NCHW)

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        images_BCHW = self.images_NCHW[indices]
        if self._border:
            images_BCHW = self._moved(images_BCHW, indices)
        normal_BCHW = (images_BCHW.float() / 255 - self._mean_C11) / self._std_C11
        return normal_BCHW, self.labels_N[indices]

    def _moved(self, images_BCHW: Tensor, indices: Tensor) -> Tensor:
        """Return each image cut out of itself with a black border, at a place of its own."""
        batch, channels, height, width = images_BCHW.shape
        words_B3 = sample_words(self._seed, self._epoch, indices.numpy(), 3)
        places = torch.from_numpy((words_B3[:, :2] % np.uint64(2 * self._border + 1)).astype(int))
        mirrored_B = torch.from_numpy((words_B3[:, 2] % np.uint64(2)).astype(bool))
        padded = functional.pad(images_BCHW, [self._border] * 4)
        rows_BH = places[:, :1] + torch.arange(height)
        columns_BW = places[:, 1:] + torch.arange(width)
        columns_BW = torch.where(mirrored_B[:, None], columns_BW.flip(1), columns_BW)
        return padded[
            torch.arange(batch)[:, None, None, None],
            torch.arange(channels)[None, :, None, None],
            rows_BH[:, None, :, None],
            columns_BW[:, None, None, :],
        ]


def small_cnn(channels: int, classes: int, widths: Sequence[int], *, grid: int) -> nn.Sequential:
    """Build 3×3 convolutions through `widths`, each halving the image, then a linear layer.

    Args:
        grid: the last images are averaged down to so many pixels each way.
    """
    layers: list[nn.Module] = []
    for inputs, outputs in zip([channels, *widths], widths, strict=False):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    features = widths[-1] * grid**2
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(grid), nn.Flatten(), nn.Linear(features, classes)
    )


def resnet18(classes: int, *, small_images: bool) -> nn.Module:
    """Build torchvision's ResNet-18 with random weights, as a sequence of its named layers.

    Args:
        small_images: keep the resolution in the first layer, as for CIFAR-10 (He et al.).
    """
    model: nn.Module = torchvision("models").resnet18(weights=None, num_classes=classes)
    if small_images:
        model.conv1 = nn.Conv2d(3, 64, kernel_size=3, padding=1, bias=False)
        nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
        model.maxpool = nn.Identity()
    layers = dict(model.named_children())
    layers["flatten"] = nn.Flatten()
    layers["fc"] = layers.pop("fc")
    return nn.Sequential(OrderedDict(layers))
