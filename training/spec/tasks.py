"""Parameters of the built-in tasks, without torch, so that a typo fails at submission."""

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from trainhall.training.spec.base import SpecModel
from trainhall.training.spec.problems import problem_at
from trainhall.training.spec.world.data import reference_in, resolved


class TaskParams(SpecModel, BaseModel):  # BaseModel: ruff sees pydantic's only within a file
    """Base of every task's parameters."""


EvalFraction = Annotated[float, Field(gt=0, lt=1, description="Fraction for validation.")]


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
    eval_fraction: EvalFraction = 0.2


class SyntheticParams(TaskParams):
    """An MLP on random data, to test a cluster."""

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
        Field(ge=0, le=3600, description="Idle seconds per step, to imitate a larger model."),
    ] = 0.0


def _absolute(value: str) -> str:
    path = PurePosixPath(value)
    is_data = reference_in(value) is not None and ".." not in path.parts
    if "\0" in value or not (path.is_absolute() or is_data):
        raise PydanticCustomError(
            "not_absolute",
            "must be an absolute path on every node; `trainhall submit` makes it absolute",
        )
    return value


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


NodePath = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_absolute)]
"""A path on every node that runs the job, or one that begins with a data set of the job, as in
`${data.NAME}/train`."""

Root = Annotated[
    NodePath,
    Field(description="Data folder on every node, relative to the spec, or `${data.NAME}`."),
]
Download = Annotated[bool, Field(description="Download missing files first, once per node.")]


class MnistParams(TaskParams):
    """An MLP or a small CNN on MNIST: 70,000 handwritten digits of 28×28 pixels.

    `root`, or `MNIST/raw` below it, holds the four IDX files, plain or `.gz`. Data: Y. LeCun, C.
    Cortes and C. Burges, "The MNIST Database of Handwritten Digits" (1998).
    """

    root: Root
    model: Annotated[Literal["mlp", "cnn"], Field(description="Architecture.")] = "cnn"
    download: Download = False


class FashionMnistParams(MnistParams):
    """Like `mnist`, on 70,000 images of clothes in `root/FashionMNIST/raw`.

    Data: Xiao, Rasul and Vollgraf, "Fashion-MNIST" (arXiv:1708.07747).
    """


class Cifar10Params(TaskParams):
    """ResNet-18 for 32×32 pixels on CIFAR-10.

    `root` holds `cifar-10-batches-py` (torchvision's download) or `cifar-10-batches-bin`. The first
    layer is a 3×3 convolution of stride 1 without pooling (He et al., arXiv:1512.03385). Data: A.
    Krizhevsky, "Learning Multiple Layers of Features from Tiny Images" (2009).
    """

    root: Root
    augment: Annotated[
        bool, Field(description="Random crops (padding of 4 pixels) and horizontal flips.")
    ] = True
    download: Download = False


class ImageFolderParams(TaskParams):
    """A classifier for your own images: `root` holds one folder per class.

    `root` may hold `train` and `val` with such folders; otherwise a part is split off.
    """

    root: Root
    model: Annotated[Literal["resnet18", "cnn"], Field(description="Architecture.")] = "resnet18"
    image_size: Annotated[
        int, Field(ge=8, le=1024, description="Side of the model's input, in pixels.")
    ] = 64
    augment: Annotated[bool, Field(description="Random crops and flips of training images.")] = True
    eval_fraction: EvalFraction = 0.1


class LanguageModelParams(TaskParams):
    """A GPT decoder that predicts the next byte of a text; losses are in nats per byte.

    GPT-2's architecture (Radford et al., 2019): pre-norm blocks, learned positions, tied
    embeddings. Sizes: `tiny` 2 layers of width 64, `mini` 4 of 128, `small` 6 of 384, `medium` 8 of
    512, and `gpt2`, GPT-2 with 124 million parameters.
    """

    files: Annotated[
        list[NodePath] | None,
        BeforeValidator(_listed),
        Field(
            min_length=1,
            max_length=1024,
            description="Text files, folders, or patterns such as `/data/*.txt`. Default: "
            "Python's standard library.",
        ),
    ] = None
    size: Annotated[
        Literal["tiny", "mini", "small", "medium", "gpt2"],
        Field(description="Model size, unless `layers`, `width` and `heads` set it."),
    ] = "mini"
    layers: Annotated[int | None, Field(ge=1, le=1024, description="Number of blocks.")] = None
    width: Annotated[
        int | None,
        Field(ge=8, le=65536, description="A multiple of `heads`; give both."),
    ] = None
    heads: Annotated[
        int | None,
        Field(ge=1, le=1024, description="Attention heads per block."),
    ] = None
    context: Annotated[
        int | None,
        Field(ge=8, le=8192, description="Context in bytes. Default by `size`: 64, 128, 256, 512, "
              "1024."),
    ] = None  # fmt: skip
    dropout: Annotated[float, Field(ge=0, lt=1, description="Dropout inside the blocks.")] = 0.0
    vocabulary: Annotated[
        int | None,
        Field(ge=256, le=1_000_000, description="Rows of the embedding; bytes use 256. "
              "Default: 256; 50,257 for `gpt2`."),
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


def paths_in(params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the paths in a built-in task's parameters, each with the parameter's name."""
    for name in TASK_PATHS:
        value = params.get(name)
        yield from (
            (name, each) for each in (value if isinstance(value, list) else [value]) if each
        )


def with_data(params: Mapping[str, Any], paths: Mapping[str, str]) -> dict[str, Any]:
    """Return a built-in task's parameters, with the paths of data sets in place of their names."""

    def of(value: Any) -> Any:
        if isinstance(value, list):
            return [of(each) for each in value]
        return resolved(value, paths) if isinstance(value, str) else value

    return {name: of(value) if name in TASK_PATHS else value for name, value in params.items()}
