"""Tasks of the GPU benchmark: real models on random data in host memory."""

import torch
from pydantic import BaseModel
from torch import Tensor, nn
from torch.nn import functional

from trainhall.parallelism.declaration import Declaration
from trainhall.task import Task
from trainhall.training.spec import JobSpec
from trainhall.training.spec.models import Shape, gpt, resnet18
from trainhall.training.tasks import images
from trainhall.training.tasks.base import TensorData
from trainhall.training.tasks.gpt import GPT


class ImagesParams(BaseModel):
    samples: int


class Images(Task):
    """ResNet-18 on images of CIFAR-10's shape."""

    Params = ImagesParams

    def __init__(self, params: ImagesParams, job: JobSpec) -> None:
        random = torch.Generator().manual_seed(job.training.seed)
        self.train_data = TensorData(
            torch.randn(params.samples, 3, 32, 32, generator=random),
            torch.randint(10, (params.samples,), generator=random),
        )

    def build_model(self) -> nn.Module:
        return images.resnet18(10, small_images=True)

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[()]]:
        inputs, labels = batch
        return functional.cross_entropy(model(inputs), labels), ()

    def declaration(self) -> Declaration:
        return resnet18()


class TokensParams(BaseModel):
    samples: int
    layers: int
    heads: int
    width: int
    context: int
    vocabulary: int


class Tokens(Task):
    """A GPT decoder on random tokens."""

    Params = TokensParams

    def __init__(self, params: TokensParams, job: JobSpec) -> None:
        self._shape = Shape(**params.model_dump(exclude={"samples"}))
        random = torch.Generator().manual_seed(job.training.seed)
        size = (params.samples, params.context + 1)
        tokens = torch.randint(params.vocabulary, size, generator=random)
        self.train_data = TensorData(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())

    def build_model(self) -> nn.Module:
        return GPT(self._shape)

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[()]]:
        tokens, following = batch
        return functional.cross_entropy(model(tokens).flatten(0, 1), following.flatten()), ()

    def declaration(self) -> Declaration:
        return gpt(self._shape)
