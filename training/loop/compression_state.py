"""The state of a gradient compression, in checkpoints, for any number of ranks.

    gradient_sync/residual/3/layer.weight   not sent yet by rank 3
    gradient_sync/basis/layer.weight        what is the same on all ranks

The sum of the residuals over the ranks is what the averaged gradient lacks so far. A job that
resumes from the checkpoint keeps that sum: as many ranks as before in the same bits, other ranks
in equal shares. A job whose gradients are combined whole, or one of a single rank, adds it to
its next gradient."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from trainhall.distributed import breakable
from trainhall.distributed.compression.error_feedback import RESIDUAL, added
from trainhall.parallelism.strategy import Strategy
from trainhall.training.checkpoint.format.manifest import Manifest
from trainhall.training.checkpoint.index import Index
from trainhall.training.checkpoint.state import unescaped

PART = "gradient_sync"
"""The key in a checkpoint's state."""
_RESIDUAL = RESIDUAL.removesuffix("/")

_ByName = dict[str, Tensor]


class _Form(NamedTuple):
    """The form of a residual."""

    shape: torch.Size
    dtype: torch.dtype


class CompressionState:
    """One rank's side of it; all ranks make the same calls.

    Args:
        group: that carries host memory; None: there is one rank.
    """

    def __init__(self, strategy: Strategy, group: dist.ProcessGroup | None) -> None:
        self._strategy = strategy
        self._group = group
        self._rank, self._world_size = (group.rank(), group.size()) if group else (0, 1)
        self._saved_by = 0
        self._shared: _ByName = {}
        self._residuals: dict[int, _ByName] = {}
        """By the rank that saved them."""
        self._zeros: _ByName = {}
        """Like the residuals of every rank, without memory."""

    def snapshot(self) -> dict[str, Any]:
        """Gather the residuals of all ranks on rank 0, which saves them with the rest."""
        saved: dict[str, Any] = {}
        own: _ByName = {}
        for key, tensor in sorted(self._strategy.sync_state().items()):
            kind, name = key.split("/", 1)
            if kind == _RESIDUAL:
                own[name] = tensor
            else:
                saved.setdefault(kind, {})[name] = tensor
        if self._rank == 0:
            # The pending residual is the same on all ranks, so it counts once.
            own = added(self._strategy.pending_residual(), own)
        for name, form in self._kept_anywhere(own):
            # A rank that has come since the last step has sent everything.
            tensor = own[name] if name in own else torch.zeros(form.shape, dtype=form.dtype)
            for rank, residual in enumerate(self._gather(tensor)):
                saved.setdefault(_RESIDUAL, {}).setdefault(rank, {})[name] = residual
        return saved

    def _kept_anywhere(self, own: _ByName) -> list[tuple[str, _Form]]:
        """Return the residuals that some rank has, in the same order on all ranks."""
        forms = {name: _Form(tensor.shape, tensor.dtype) for name, tensor in own.items()}
        gathered = [forms] if self._group is None else breakable.gather_objects(forms, self._group)
        return sorted({name: form for each in gathered for name, form in each.items()}.items())

    def allocate_like(self, manifest: Manifest, index: Index) -> dict[str, Any]:
        """Allocate tensors for a checkpoint's, as far as this rank has to know it."""
        self._saved_by = manifest.world_size
        self._shared, self._residuals, self._zeros = {}, {}, {}
        allocated: dict[str, Any] = {}
        for path, entry in index.metadata.state_dict_metadata.items():
            part, *keys = map(unescaped, path.split("/"))
            if part != PART:
                continue
            assert isinstance(entry, TensorStorageMetadata)
            size, dtype = entry.size, entry.properties.dtype
            match keys:
                case (kind, rank, name):
                    self._zeros[name] = torch.zeros((), dtype=dtype).expand(size)
                    # If there are other ranks now, they divide those of before among them.
                    if int(rank) % self._world_size == self._rank:
                        tensor = torch.empty(size, dtype=dtype)
                        self._residuals.setdefault(int(rank), {})[name] = tensor
                        allocated.setdefault(kind, {}).setdefault(rank, {})[name] = tensor
                case (kind, name):
                    tensor = self._shared[f"{kind}/{name}"] = torch.empty(size, dtype=dtype)
                    allocated.setdefault(kind, {})[name] = tensor
        return allocated

    def restore(self) -> str | None:
        """Adopt the tensors that `allocate_like` allocated, once they are read; return a note for
        users if residuals were lost."""
        mine = self._residuals.get(self._rank, {})
        if self._saved_by != self._world_size:
            mine = {name: total / self._world_size for name, total in self._totals().items()}
        lost = self._has_no_place(mine) and not self._strategy.add_pending_residual(self._totals())
        self._shared, self._residuals, self._zeros = {}, {}, {}
        if lost:
            return (
                "the residuals of the gradient compression were dropped: only strategy ddp can add "
                "them to a gradient"
            )
        return None

    def take(self, saved: Mapping[str, Any]) -> None:
        """Adopt what `snapshot` gave, which every rank has; for strategies with pending
        residuals."""
        residuals: dict[int, _ByName] = {
            int(rank): dict(by_name) for rank, by_name in saved.get(_RESIDUAL, {}).items()
        }
        totals = {
            name: torch.stack([each[name] for each in residuals.values()]).sum(dim=0)
            for name in residuals.get(0, {})
        }
        self._shared = {
            f"{kind}/{name}": tensor
            for kind, by_name in saved.items()
            if kind != _RESIDUAL
            for name, tensor in by_name.items()
        }
        mine = residuals.get(self._rank, {})
        if len(residuals) != self._world_size:
            mine = {name: total / self._world_size for name, total in totals.items()}
        self._strategy.add_pending_residual(totals if self._has_no_place(mine) else {})
        self._shared = {}

    def _has_no_place(self, mine: _ByName) -> bool:
        """Hand this rank's residuals to its compression; whether that has no use for some."""
        residuals = {RESIDUAL + name: tensor for name, tensor in mine.items()}
        self._strategy.load_sync_state(self._shared | residuals)
        return not residuals.keys() <= self._strategy.sync_state().keys()

    def _totals(self) -> _ByName:
        """Return, by parameter, the sum of all ranks' residuals; the same on all ranks."""
        totals = {name: zeros.clone() for name, zeros in sorted(self._zeros.items())}
        for name, total in totals.items():
            for residuals in self._residuals.values():
                total += residuals[name]
            breakable.all_reduce(total, group=self._group)
        return totals

    def _gather(self, tensor: Tensor) -> list[Tensor]:
        """Gather every rank's tensor on rank 0 alone."""
        mine = tensor.cpu().contiguous()
        if self._world_size == 1:
            return [mine]
        first = self._rank == 0
        all_of_them = [torch.empty_like(mine) for _ in range(self._world_size)] if first else None
        breakable.gather(mine, all_of_them, self._group)
        return all_of_them or []
