"""Planning a save: which rank writes what, and each piece of memory once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan
from torch.distributed.tensor import DTensor

from trainhall.training.checkpoint.index import dtype_name
from trainhall.training.checkpoint.ranks import Ranks, SingleProcess
from trainhall.training.checkpoint.state import FlatState, Plain
from trainhall.training.checkpoint.storage import same_memory


@dataclass
class Plan:
    """Assignment of shards to ranks. It holds as long as names, shapes and dtypes stay."""

    shape_of_state: list[tuple[str, Any, Any]]
    mine: SavePlan
    metadata: Metadata


def plan_full(flat: FlatState, known: Plan | None) -> Plan:
    """Plan the writes of one rank for a state that every rank holds whole; `known`, if it still
    fits.

    Raises:
        TypeError: a tensor is sharded, or not dense.
    """
    if (sharded := _first_sharded(flat.tensors)) is not None:
        raise TypeError(f"{sharded} is sharded (a DTensor); this needs replicated=False")
    shape = [(name, t.shape, t.dtype) for name, t in flat.tensors.items()]
    if known is not None and known.shape_of_state == shape:
        return known
    return _plan(_planner(flat, first=True), SingleProcess(), shape)


def plan_shards(flat: FlatState, ranks: Ranks) -> tuple[Plan, dict[MetadataIndex, Tensor]]:
    """Return the plan for a state that the ranks hold together, and the tensors of this rank.

    Raises:
        TypeError: a tensor is not dense.
    """
    planner = _planner(flat, first=ranks.rank == 0)
    plan = _plan(planner, ranks, [])
    tensors: dict[MetadataIndex, Tensor] = {}
    for item in plan.mine.items:
        data = planner.resolve_data(item)
        assert isinstance(data, Tensor)
        tensors[item.index] = data.detach()
    return plan, tensors


def _planner(flat: FlatState, *, first: bool) -> DefaultSavePlanner:
    for name, tensor in flat.tensors.items():
        dtype_name(tensor.dtype, name)
        if tensor.layout is not torch.strided:
            raise TypeError(f"{name} is {tensor.layout}; a checkpoint holds dense tensors")
    # The names are flat and final already.
    planner = DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    planner.set_up_planner(dict(flat.tensors), is_coordinator=first)
    return planner


def _plan(planner: DefaultSavePlanner, ranks: Ranks, shape: list[tuple[str, Any, Any]]) -> Plan:
    """Make the global plan on every rank: it follows from all local plans, so none is sent back."""
    final, metadata = planner.create_global_plan(ranks.gather(planner.create_local_plan()))
    return Plan(shape, final[ranks.rank], metadata)


def pieces_of(
    tensors: Mapping[MetadataIndex, Tensor],
) -> tuple[list[Tensor], dict[MetadataIndex, int]]:
    """Take each piece of memory once (tied weights are written once), and who is where."""
    pieces: dict[Any, Tensor] = {}
    order: dict[Any, int] = {}
    places: dict[MetadataIndex, int] = {}
    for index, tensor in tensors.items():
        identity = same_memory(tensor) or index
        if identity not in pieces:
            pieces[identity] = tensor
            order[identity] = len(order)
        places[index] = order[identity]
    return list(pieces.values()), places


def common_values(
    values: Sequence[dict[str, Plain]],
) -> tuple[dict[str, Plain], dict[int, dict[str, Plain]]]:
    """Divide values into those that the ranks share (the lowest one's) and those of single
    ranks."""
    common: dict[str, Plain] = {}
    for mine in values:
        for name, value in mine.items():
            common.setdefault(name, value)
    besides = {
        rank: {name: v for name, v in mine.items() if not _same(common[name], v)}
        for rank, mine in enumerate(values)
    }
    return common, {rank: different for rank, different in besides.items() if different}


def _same(a: Plain, b: Plain) -> bool:
    return type(a) is type(b) and (a == b or (a != a and b != b))


def _first_sharded(tensors: Mapping[str, Tensor]) -> str | None:
    return next((name for name, t in tensors.items() if isinstance(t, DTensor)), None)
