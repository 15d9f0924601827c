"""Tracks what a training step holds, computes and sends, operator by operator.

It works on real tensors and on fake ones (`FakeTensorMode`) alike.
"""

import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.distributed_c10d import _resolve_process_group
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

from trainhall.parallelism import flops

KINDS = ("parameters", "gradients", "optimizer", "activations", "buffers")
"""Uses of memory. `activations` are whatever the passes compute, `buffers` the model's own
and those of communication."""
PHASES = ("start", "forward", "backward", "update")


@dataclass
class Block:
    """Memory that tensors share."""

    size: int
    phase: str
    """In which it was allocated."""
    kind: str | None = None

    @property
    def label(self) -> str:
        """Kind, or where that is unknown, the phase in which it was allocated."""
        if self.kind is not None:
            return self.kind
        return {"start": "parameters", "update": "buffers"}.get(self.phase, "activations")


@dataclass
class Tracker(TorchDispatchMode):
    """Follows the memory of all tensors that are made within it, and of those it is shown."""

    phase: str = "start"
    flops: int = 0
    sent: Counter[str] = field(default_factory=Counter)
    """Bytes that this rank sends, by kind of collective, as the algorithms that use the network
    best send them: an all-reduce over n ranks 2(n−1)/n of its size, a gather (n−1)/n."""

    calls: int = 0
    """Collectives."""

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._live: dict[int, Block] = {}
        self._watched: dict[int, Any] = {}
        self._changes: list[tuple[str, Block, int]] = []
        self._flops = flops.counter().flop_registry
        self._resize = torch.UntypedStorage.resize_
        self._try_operator = ShardingPropagator._propagate_tensor_meta_non_cached
        self._is_trial = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and the check costs time with each operator

    def __enter__(self) -> "Tracker":
        tracker = self

        def resized(storage: torch.UntypedStorage, size: int) -> Any:
            result = tracker._resize(storage, size)
            tracker._change(storage, size)
            return result

        def tried(propagator: ShardingPropagator, schema: Any) -> Any:
            tracker._is_trial = True
            try:
                return tracker._try_operator(propagator, schema)
            finally:
                tracker._is_trial = False

        # DTensor tries each operator new to it on fake tensors of full size, which no rank holds.
        ShardingPropagator._propagate_tensor_meta_non_cached = tried  # type: ignore[method-assign, assignment]
        # FSDP frees and takes back memory of a tensor in place, which is no operator.
        torch.UntypedStorage.resize_ = resized  # type: ignore[method-assign, assignment]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        ShardingPropagator._propagate_tensor_meta_non_cached = (  # type: ignore[method-assign]
            self._try_operator
        )
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.prim.device.default:  # half of what fake tensors are asked
            return args[0].fake_device if isinstance(args[0], FakeTensor) else func(*args)
        if self._is_trial:
            return func(*args, **kwargs)
        given = tensors_in((*args, *kwargs.values()))
        if any(is_traceable_wrapper_subclass(tensor) for tensor in given):
            return NotImplemented  # a DTensor returns as operators on its parts
        result = func(*args, **kwargs)
        made = tensors_in((result,))
        self.watch(made)
        formula = self._flops.get(func._overloadpacket)
        if formula is not None:
            self.flops += formula(*args, **kwargs, out_val=result)
        if func.namespace in ("c10d", "_c10d_functional"):
            self._send(func.__name__, given, made, args)
            self.name([*given, *made], "buffers")
        elif func.namespace == "fsdp":
            self.name([*given, *made], "buffers")
        return result

    def watch(self, tensors: Iterable[Tensor], kind: str | None = None) -> None:
        """Count the memory of tensors from now on."""
        for tensor in _plain(tensors):
            storage = tensor.untyped_storage()
            address = storage._cdata
            if address not in self._live:
                block = self._live[address] = Block(0, self.phase, kind)
                self._watched[address] = weakref.ref(storage, self._ended(address, block))
                self._change(storage, storage.nbytes())

    def name(self, tensors: Iterable[Tensor], kind: str, *, overwrite: bool = False) -> None:
        """Label memory with its use, where it has no label yet, or with `overwrite`."""
        for tensor in _plain(tensors):
            block = self._live.get(tensor.untyped_storage()._cdata)
            if block is not None and (overwrite or block.kind is None):
                block.kind = kind

    def peaks(self) -> dict[str, dict[str, float]]:
        """Return, by phase, the most bytes held at once in it, by kind."""
        return {phase: self._peak(phase) for phase in PHASES}

    def _peak(self, phase: str) -> dict[str, float]:
        held: Counter[str] = Counter()
        most, total = Counter[str](), 0
        highest = -1
        for index, (when, _, change) in enumerate(self._changes):
            total += change
            if when == phase and total > most.total():
                most = Counter({"total": total})
                highest = index
        for _, block, change in self._changes[: highest + 1]:
            held[block.label] += change
        return {kind: held[kind] for kind in KINDS}

    def _change(self, storage: torch.UntypedStorage, size: int) -> None:
        block = self._live.get(storage._cdata)
        if block is not None and size != block.size:
            self._changes.append((self.phase, block, size - block.size))
            block.size = size

    def _ended(self, address: int, block: Block) -> Any:
        def ended(_: Any) -> None:
            if self._live.get(address) is block:
                del self._live[address], self._watched[address]
            self._changes.append((self.phase, block, -block.size))

        return ended

    def _send(self, name: str, given: list[Tensor], made: list[Tensor], args: Any) -> None:
        sizes = [sum(t.numel() * t.element_size() for t in side) for side in (given, made)]
        if name.startswith("wait"):
            return
        self.calls += 1
        size = _group_size(args)
        share = (size - 1) / size
        if "reduce" in name and "scatter" not in name:
            self.sent["all-reduce"] += round(2 * share * sizes[0])
        elif "scatter" in name:
            self.sent["reduce-scatter"] += round(share * _largest(given))
        elif "gather" in name:
            self.sent["all-gather"] += round(share * _largest([*given, *made]))
        elif "alltoall" in name or "all_to_all" in name:
            self.sent["all-to-all"] += round(share * _largest(given))
        elif "broadcast" in name:
            self.sent["broadcast"] += sizes[0]


def tensors_in(values: Iterable[Any]) -> list[Tensor]:
    """Return the tensors among an operator's arguments or results, as `tree_leaves` but quicker:
    they stand in lists at most."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += tensors_in(value)
    return found


def _plain(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    for tensor in tensors:
        if is_traceable_wrapper_subclass(tensor):
            names, _ = tensor.__tensor_flatten__()
            inner = (getattr(tensor, name) for name in names)
            yield from _plain(each for each in inner if isinstance(each, Tensor))
        else:
            yield tensor


def _largest(tensors: list[Tensor]) -> int:
    return max((t.numel() * t.element_size() for t in tensors), default=0)


def _group_size(args: Any) -> int:
    for leaf in tree_leaves(args):
        if isinstance(leaf, torch.ScriptObject) and "ProcessGroup" in str(leaf._type()):
            return dist.ProcessGroup.unbox(leaf).size()
    names: list[Any] = [leaf for leaf in args if isinstance(leaf, str)]
    return _resolve_process_group(names[-1]).size() if names else dist.get_world_size()
