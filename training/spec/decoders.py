"""Sizes of GPT decoders, without torch."""

from dataclasses import dataclass

from trainhall.training.spec.tasks import LanguageModelParams


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
