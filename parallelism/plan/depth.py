"""Models of many equal layers, made shorter: what a step needs grows evenly with their number."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from torch import nn

from trainhall.parallelism.declaration import Declaration, Layer, Sequences, Split

LEAST = 8
"""Shorter rows of equal layers are taken as they are."""


@dataclass(frozen=True)
class Row:
    """Layers `first` to `first + length` of a declaration, which are alike."""

    first: int
    length: int


def equal_layers(model: nn.Module, declaration: Declaration) -> Row | None:
    """Return the longest row of equal layers, none sharing weights or splits with others."""
    forms = [_form(model, layer) for layer in declaration.layers]
    users: dict[int, int] = {}
    for _, parameter in model.named_parameters(remove_duplicate=False):
        users[id(parameter)] = users.get(id(parameter), 0) + 1
    best = Row(0, 0)
    first = 0
    for at in range(1, len(forms) + 1):
        if at == len(forms) or forms[at] != forms[first]:
            best = max(best, Row(first, at - first), key=lambda row: row.length)
            first = at
    if best.length < LEAST:
        return None
    layers = declaration.layers[best.first : best.first + best.length]
    alone = all(
        users[id(p)] == 1
        for layer in layers for name in layer for p in model.get_submodule(name).parameters()
    )  # fmt: skip
    whole = all(
        _within(split.column, layer) == _within(split.row, layer)
        for split in declaration.splits for layer in layers
    )  # fmt: skip
    return best if alone and whole else None


def shorten(
    model: nn.Module, declaration: Declaration, row: Row, length: int
) -> tuple[nn.Module, Declaration]:
    """Shorten the model to `length` of the row's layers; the others pass inputs on."""
    left_out = declaration.layers[row.first + length : row.first + row.length]
    for layer in left_out:
        for name in layer:
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, nn.Identity())
    return model, without(declaration, left_out)


def without(declaration: Declaration, left_out: Collection[Layer]) -> Declaration:
    """Return the declaration of a model that lacks some of its layers."""

    def gone(name: str) -> bool:
        return any(_within(name, layer) for layer in left_out)

    def kept(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if not gone(name))

    splits: tuple[Split, ...] = tuple(s for s in declaration.splits if not gone(s.column))
    sequences: Sequences | None = declaration.sequences
    if sequences is not None:
        sequences = replace(sequences, norms=kept(sequences.norms), mixers=kept(sequences.mixers))
    layers = tuple(layer for layer in declaration.layers if layer not in left_out)
    return replace(declaration, layers=layers, splits=splits, sequences=sequences)


def _form(model: nn.Module, layer: Layer) -> list[object]:
    return [
        (type(module), [tuple(p.shape) for p in module.parameters()])
        for module in map(model.get_submodule, layer)
    ]


def _within(name: str, layer: Layer) -> bool:
    return any(name == module or name.startswith(module + ".") for module in layer)
