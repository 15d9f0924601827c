"""Parameters of the built-in tasks, without torch, so that a typo fails at submission."""

from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)
from pydantic_core import PydanticCustomError

from trainhall.training.spec.base import StrictNumbersModel
from trainhall.training.spec.problems import problem_at


class TaskParams(StrictNumbersModel, BaseModel):
    """Base of every task's parameters: unknown keys are errors, values are finite and immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DigitsParams(TaskParams):
    """An MLP on scikit-learn's handwritten digits: 1,797 images of 8×8 pixels.

    Data: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits" (UCI, 1998).
    """

    hidden: Annotated[
        list[Annotated[int, Field(ge=1, le=65536)]],
        Field(max_length=16, description="Width of each hidden layer."),
    ] = [256]
    dropout: Annotated[float, Field(ge=0, lt=1, description="Dropout after each hidden layer.")] = (
        0.0
    )
    eval_fraction: Annotated[
        float, Field(gt=0, lt=1, description="Fraction of the images used for validation.")
    ] = 0.2


class SyntheticParams(TaskParams):
    """An MLP regression on random data, to test a cluster; there is nothing to learn."""

    samples: Annotated[
        int, Field(ge=1, le=100_000_000, description="Samples of the virtual training set.")
    ] = 4096
    features: Annotated[int, Field(ge=1, le=1_048_576, description="Input width.")] = 32
    hidden: Annotated[
        list[Annotated[int, Field(ge=1, le=65536)]],
        Field(max_length=64, description="Width of each hidden layer."),
    ] = [64]
    step_seconds: Annotated[
        float,
        Field(
            ge=0, le=3600, description="Idle seconds added to each step, to imitate a larger model."
        ),
    ] = 0.0


def _absolute(value: str) -> str:
    if "\0" in value or not PurePosixPath(value).is_absolute():
        raise PydanticCustomError(
            "not_absolute",
            "must be an absolute path on every node; `trainhall submit` makes it absolute",
        )
    return value


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


NodePath = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_absolute)]
"""A path on every node that runs the job."""

Root = Annotated[
    NodePath,
    Field(description="Folder of the data on every node, relative to the spec."),
]
Download = Annotated[
    bool, Field(description="Download missing files into `root` before training, once per node.")
]
EvalFraction = Annotated[
    float, Field(gt=0, lt=1, description="Fraction of the samples used for validation.")
]


class MnistParams(TaskParams):
    """An MLP or a small CNN on MNIST: 70,000 handwritten digits of 28×28 pixels.

    `root` holds `MNIST/raw` with the four IDX files, plain or as `.gz`, or holds the files
    themselves. Data: Y. LeCun, C. Cortes and C. Burges, "The MNIST Database of Handwritten
    Digits" (1998).
    """

    root: Root
    model: Annotated[Literal["mlp", "cnn"], Field(description="Model architecture.")] = "cnn"
    download: Download = False


class FashionMnistParams(MnistParams):
    """Like `mnist`, on 70,000 images of clothes in `root/FashionMNIST/raw`.

    Data: Xiao, Rasul and Vollgraf, "Fashion-MNIST" (arXiv:1708.07747).
    """


class Cifar10Params(TaskParams):
    """ResNet-18 for 32×32 pixels on CIFAR-10, with random crops and flips.

    `root` holds `cifar-10-batches-py` (torchvision's download) or the binary version
    `cifar-10-batches-bin`. The first layer is a 3×3 convolution of stride 1 without pooling, as in
    He et al. for images of this size (arXiv:1512.03385). Data: A. Krizhevsky, "Learning
    Multiple Layers of Features from Tiny Images" (2009).
    """

    root: Root
    augment: Annotated[
        bool, Field(description="Random crops (padding of 4 pixels) and horizontal flips.")
    ] = True
    download: Download = False


class ImageFolderParams(TaskParams):
    """A classifier for your own images: `root` holds one folder per class.

    `root` may also hold `train` and `val`, each with one folder per class; otherwise a part of the
    images is used for validation. Training images are cropped and flipped at random.
    """

    root: Root
    model: Annotated[Literal["resnet18", "cnn"], Field(description="Model architecture.")] = (
        "resnet18"
    )
    image_size: Annotated[
        int, Field(ge=8, le=1024, description="Width and height of the model's input, in pixels.")
    ] = 64
    augment: Annotated[bool, Field(description="Random crops and flips of training images.")] = True
    eval_fraction: EvalFraction = 0.1


class LanguageModelParams(TaskParams):
    """A GPT decoder that predicts the next byte of a text; losses are in nats per byte.

    The architecture is GPT-2's (Radford et al., 2019): pre-norm blocks, learned positions, tied
    embeddings. Sizes: `tiny` 2 layers of width 64, `mini` 4 of 128, `small` 6 of 384, `medium` 8 of
    512, and `gpt2` with the 124 million parameters of GPT-2, including its embedding of 50,257
    rows, of which bytes use 256. `layers`, `width` and `heads` set any other size.
    """

    files: Annotated[
        list[NodePath] | None,
        BeforeValidator(_listed),
        Field(
            min_length=1,
            max_length=1024,
            description="Text files, folders of them, or patterns such as `/data/*.txt`. Default: "
            "the sources of Python's standard library.",
        ),
    ] = None
    size: Annotated[
        Literal["tiny", "mini", "small", "medium", "gpt2"],
        Field(description="Size of the model."),
    ] = "mini"
    layers: Annotated[
        int | None, Field(ge=1, le=1024, description="Number of blocks. Default: from `size`.")
    ] = None
    width: Annotated[
        int | None,
        Field(ge=8, le=65536, description="Width of the blocks, a multiple of `heads`; give both."),
    ] = None
    heads: Annotated[
        int | None,
        Field(ge=1, le=1024, description="Attention heads per block; give `width` as well."),
    ] = None
    context: Annotated[
        int | None,
        Field(ge=8, le=8192, description="Context length in bytes. Default: 64, 128, 256, 512 or "
              "1024, by `size`."),
    ] = None  # fmt: skip
    dropout: Annotated[float, Field(ge=0, lt=1, description="Dropout inside the blocks.")] = 0.0
    vocabulary: Annotated[
        int | None,
        Field(ge=256, le=1_000_000, description="Rows of the embedding. Default: 256; 50,257 "
              "for `gpt2`."),
    ] = None  # fmt: skip
    eval_fraction: EvalFraction = 0.1

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        if (self.width is None) != (self.heads is None):
            given, missing = ("width", "heads") if self.heads is None else ("heads", "width")
            raise problem_at(given, getattr(self, given), f"needs {missing}; give both")
        if self.width is not None and self.heads is not None and self.width % self.heads:
            raise problem_at(
                "heads", self.heads, f"width {self.width} is not divisible by {self.heads} heads"
            )
        return self


TASK_PARAMS: dict[str, type[TaskParams]] = {
    "cifar10": Cifar10Params,
    "digits": DigitsParams,
    "fashion_mnist": FashionMnistParams,
    "image_folder": ImageFolderParams,
    "language_model": LanguageModelParams,
    "mnist": MnistParams,
    "synthetic": SyntheticParams,
}

TASK_PATHS = ("root", "files")
"""The parameters of built-in tasks that are paths."""
