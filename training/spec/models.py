"""Sizes and declarations of the built-in tasks' models, without torch.

Names are those of the modules that `training/tasks` builds; a test holds the two together.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from trainhall.parallelism.declaration import Declaration, Layer, Sequences, Split
from trainhall.training.spec.tasks import (
    Cifar10Params,
    DigitsParams,
    ImageFolderParams,
    LanguageModelParams,
    MnistParams,
    SyntheticParams,
    TaskParams,
)

MNIST_HIDDEN = 256
MNIST_CNN_WIDTHS = (16, 32)
IMAGE_CNN_WIDTHS = (32, 64, 128)
_RESNET18_BLOCKS = [f"layer{stage}.{block}" for stage in range(1, 5) for block in range(2)]


@dataclass(frozen=True)
class Shape:
    """Size of a decoder."""

    layers: int
    heads: int
    width: int
    context: int
    """Context length in positions."""
    vocabulary: int = 256
    dropout: float = 0.0


SIZES = {
    "tiny": Shape(layers=2, heads=2, width=64, context=64),
    "mini": Shape(layers=4, heads=4, width=128, context=128),
    "small": Shape(layers=6, heads=6, width=384, context=256),
    "medium": Shape(layers=8, heads=8, width=512, context=512),
    # 124,439,808 parameters.
    "gpt2": Shape(layers=12, heads=12, width=768, context=1024, vocabulary=50257),
}


def shape_of(params: LanguageModelParams) -> Shape:
    """Return the size that the parameters select."""
    size = SIZES[params.size]
    return Shape(
        layers=params.layers or size.layers,
        heads=params.heads or size.heads,
        width=params.width or size.width,
        context=params.context or size.context,
        vocabulary=params.vocabulary or size.vocabulary,
        dropout=params.dropout,
    )


def declaration_of(params: TaskParams) -> Declaration:
    """Return the declaration of a built-in task's model."""
    match params:
        case DigitsParams():
            return mlp(params.hidden, dropout=params.dropout > 0)
        case SyntheticParams():
            return mlp(params.hidden)
        case MnistParams() if params.model == "mlp":
            return mlp([MNIST_HIDDEN], prefix="1.", before=("0",))
        case MnistParams():
            return cnn(MNIST_CNN_WIDTHS)
        case ImageFolderParams() if params.model == "cnn":
            return cnn(IMAGE_CNN_WIDTHS)
        case ImageFolderParams() | Cifar10Params():
            return resnet18()
        case LanguageModelParams():
            return gpt(shape_of(params))
        case _:
            return Declaration()


def mlp(
    hidden: Sequence[int], *, dropout: bool = False, prefix: str = "", before: Layer = ()
) -> Declaration:
    """Declare `training.tasks.base.mlp` with these hidden widths.

    Args:
        prefix: of its names within the model.
        before: modules that run before it.
    """
    period = 3 if dropout else 2
    names = [f"{prefix}{i}" for i in range(period * len(hidden) + 1)]
    linear = names[::period]
    splits = [
        Split(column, row, parts=width, what="hidden units")
        for column, row, width in zip(linear[::2], linear[1::2], hidden[::2], strict=False)
    ]
    layers = _rows(names, period)
    if before:
        layers = ((*before, *layers[0]), *layers[1:])
    return Declaration(layers, tuple(splits))


def cnn(widths: Sequence[int]) -> Declaration:
    """Declare `training.tasks.images.small_cnn`: convolution, ReLU and pooling per width."""
    names = [str(i) for i in range(3 * len(widths) + 3)]
    return Declaration(_rows(names, 3))


def resnet18() -> Declaration:
    """Declare `training.tasks.images.resnet18`: the stem, eight residual blocks, the classifier."""
    blocks: list[Layer] = [(name,) for name in _RESNET18_BLOCKS]
    stem: Layer = ("conv1", "bn1", "relu", "maxpool")
    return Declaration(layers=(stem, *blocks, ("avgpool", "flatten", "fc")))


def gpt(shape: Shape) -> Declaration:
    """Declare `training.tasks.gpt.GPT`."""
    blocks: list[Layer] = [(f"blocks.{i}",) for i in range(shape.layers)]
    splits, norms, mixers = [], [], []
    for (name,) in blocks:
        attention, feed_forward = f"{name}.attention", f"{name}.feed_forward"
        splits += [
            Split(f"{attention}.query_key_value", f"{attention}.output", shape.heads, "heads"),
            Split(
                f"{feed_forward}.inner", f"{feed_forward}.output", 4 * shape.width, "hidden units"
            ),
        ]
        norms += [f"{attention}_norm", f"{feed_forward}_norm"]
        mixers += [attention, feed_forward]
    return Declaration(
        layers=(("embedding",), *blocks, ("norm", "head")),
        splits=tuple(splits),
        sequences=Sequences(
            embedding="embedding",
            norms=(*norms, "norm"),
            mixers=tuple(mixers),
            head="head",
            length=shape.context,
        ),
    )


def _rows(names: list[str], width: int) -> tuple[Layer, ...]:
    return tuple(tuple(names[i : i + width]) for i in range(0, len(names), width))
