"""Storage of Distributed Checkpoint on safetensors files within a `Draft`.

The planners of torch.distributed.checkpoint decide which rank writes and reads which part of which
tensor; here the parts become bytes and back. Every rank writes files of its own. The format is that
of https://github.com/huggingface/safetensors: the length of the header as a little-endian u64, the
header in JSON, then the tensors without a gap.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.distributed.checkpoint.metadata import (
    Metadata,
    MetadataIndex,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from trainhall.training.checkpoint.format.draft import Draft
from trainhall.training.checkpoint.format.errors import BadCheckpointError, Problem
from trainhall.training.checkpoint.format.manifest import (
    Manifest,
    open_within,
    read_manifest,
    verify_files,
)
from trainhall.training.checkpoint.header import encode_header
from trainhall.training.checkpoint.index import (
    DTYPE_NAMES,
    INDEX,
    Index,
    StoredChunk,
    decode_index,
    encode_index,
)
from trainhall.training.checkpoint.state import Plain

MAX_FILE_BYTES = 2 * 1024**3
"""A rank begins a new file before one would grow beyond this (a single tensor may be larger)."""


@dataclass(frozen=True)
class _Part:
    """A chunk on its way to a file."""

    key: str
    tensor: Tensor

    @property
    def size(self) -> int:
        return self.tensor.numel() * self.tensor.element_size()


class SafetensorsWriter(StorageWriter):
    """Writes what the plan gives this rank. Entries that are not tensors are refused.

    Distributed Checkpoint would pickle them; here they go to `values`, as JSON.
    """

    def __init__(
        self,
        draft: Draft,
        rank: int = 0,
        *,
        values: dict[str, Plain] | None = None,
        rank_values: dict[int, dict[str, Plain]] | None = None,
        max_file_bytes: int = MAX_FILE_BYTES,
    ) -> None:
        self.draft = draft
        self.rank = rank
        self.values = values or {}
        self.rank_values = rank_values or {}
        self.max_file_bytes = max_file_bytes

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Do nothing: a writer serves one draft."""

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the draft is set up already."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Never chosen by Distributed Checkpoint itself: a draft must be given."""
        return False

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        for item in plan.items:
            if item.type is WriteItemType.BYTE_IO:
                raise TypeError(
                    f"{item.index.fqn} is not a tensor; pass it as a value, which is kept as JSON"
                )

        def resolve(item: WriteItem) -> Tensor:
            data = planner.resolve_data(item)
            if not isinstance(data, Tensor):
                raise TypeError(f"{item.index.fqn} is a {type(data).__name__}, not a tensor")
            return data

        done: Future[list[WriteResult]] = Future()
        done.set_result(self.write_items(plan.items, resolve))
        return done

    def write_items(
        self, items: Sequence[WriteItem], resolve: Callable[[WriteItem], Tensor]
    ) -> list[WriteResult]:
        """Write the items' tensors; those that share their memory (tied weights) once."""
        parts: dict[Any, _Part] = {}
        owner: dict[MetadataIndex, Any] = {}
        for item in items:
            tensor = resolve(item).detach()
            identity = same_memory(tensor) or item.index
            owner[item.index] = identity
            if identity not in parts:
                parts[identity] = _Part(_key(item), _bytes_in_order(tensor))
        stored: dict[str, StoredChunk] = {}
        for i, group in enumerate(_split(list(parts.values()), self.max_file_bytes)):
            file = f"tensors-{self.rank:05d}-{i:05d}.safetensors"
            self.draft.write(file, _encode_file(group))
            for part in group:
                stored[part.key] = StoredChunk(file, part.key)
        return [
            WriteResult(item.index, part.size, stored[part.key])
            for item in items
            for part in [parts[owner[item.index]]]
        ]

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write `state.json`; the draft's commit, not this, makes the checkpoint."""
        storage = {result.index: result.storage_data for rank in results for result in rank}
        index = Index(replace(metadata, storage_data=storage), self.values, self.rank_values)
        self.draft.write(INDEX, [encode_index(index)])


class SafetensorsReader(StorageReader):
    """Reads a committed checkpoint, having verified every byte of it."""

    def __init__(self, folder: Path, verified: Manifest | None = None) -> None:
        """
        Args:
            verified: the folder's manifest, if the caller has just compared all files with it.

        Raises:
            BadCheckpointError: a file is damaged, or the files contradict each other.
        """
        if verified is None:
            verified = read_manifest(folder)
            if problems := verify_files(folder, verified.files):
                raise BadCheckpointError(problems)
        self.folder = folder
        self.manifest = verified
        self._listed = {file.path for file in verified.files}
        self.index = decode_index(self._read_index())
        self._storage: dict[MetadataIndex, StoredChunk] = self.index.metadata.storage_data
        self._check()

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Do nothing: a reader serves one folder."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return self.index.metadata

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """Everything was set up with the reader."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Never chosen by Distributed Checkpoint itself."""
        return False

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        by_file: dict[str, list[ReadItem]] = defaultdict(list)
        for item in plan.items:
            if item.type is LoadItemType.BYTE_IO:
                raise TypeError(f"{item.dest_index.fqn} is not a tensor; values are kept as JSON")
            by_file[self._storage[item.storage_index].file].append(item)
        for file, items in by_file.items():
            with safe_open(self.folder / file, framework="pt", device="cpu") as tensors:
                for item in items:
                    tensor = tensors.get_tensor(self._storage[item.storage_index].key)
                    for dim, (start, length) in enumerate(
                        zip(item.storage_offsets, item.lengths, strict=True)
                    ):
                        tensor = tensor.narrow(dim, start, length)
                    target = planner.resolve_tensor(item).detach()
                    target.copy_(tensor)
                    planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _read_index(self) -> bytes:
        if INDEX not in self._listed:
            raise BadCheckpointError([Problem(INDEX, "to be listed in the manifest", "it is not")])
        with open_within(self.folder, INDEX) as file:
            return file.readall()

    def _check(self) -> None:
        """Compare what `state.json` says with the headers of the files, before anything is read."""
        by_file: dict[str, list[tuple[str, str, list[int]]]] = defaultdict(list)
        for name, entry in self.index.metadata.state_dict_metadata.items():
            assert isinstance(entry, TensorStorageMetadata)
            if sum(prod(chunk.sizes) for chunk in entry.chunks) != prod(entry.size):
                raise BadCheckpointError([Problem(INDEX, f"chunks that make up {name}", "others")])
            for chunk in entry.chunks:
                if not _lies_within(chunk.offsets, chunk.sizes, entry.size):
                    raise BadCheckpointError(
                        [Problem(INDEX, f"chunks within {name}", "one beyond it")]
                    )
                stored = self._storage[MetadataIndex(name, chunk.offsets)]
                dtype = DTYPE_NAMES[entry.properties.dtype]
                by_file[stored.file].append((stored.key, dtype, list(chunk.sizes)))
        for file, chunks in by_file.items():
            if file not in self._listed:
                raise BadCheckpointError(
                    [Problem(file, "to be listed in the manifest", "it is not")]
                )
            self._check_file(file, chunks)

    def _check_file(self, file: str, chunks: list[tuple[str, str, list[int]]]) -> None:
        try:
            with safe_open(self.folder / file, framework="pt", device="cpu") as tensors:
                for key, dtype, sizes in chunks:
                    view = tensors.get_slice(key)
                    found = (view.get_dtype(), list(view.get_shape()))
                    if found != (dtype, sizes):
                        raise BadCheckpointError(
                            [Problem(file, f"{key} as {dtype} {sizes}", f"{found[0]} {found[1]}")]
                        )
        except (SafetensorError, OSError) as error:
            raise BadCheckpointError(
                [Problem(file, "safetensors as listed", str(error))]
            ) from error


def _lies_within(offsets: torch.Size, sizes: torch.Size, whole: torch.Size) -> bool:
    return len(offsets) == len(sizes) == len(whole) and all(
        0 <= start <= start + size <= end
        for start, size, end in zip(offsets, sizes, whole, strict=True)
    )


def same_memory(tensor: Tensor) -> tuple[Any, ...] | None:
    """Equal for tensors that are the same bytes in the same form; None for one without bytes."""
    if tensor.numel() == 0:
        return None
    lazy = (tensor.is_conj(), tensor.is_neg())
    return (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), lazy)


def _bytes_in_order(tensor: Tensor) -> Tensor:
    return tensor.cpu().resolve_conj().resolve_neg().contiguous()


def _key(item: WriteItem) -> str:
    """Return the tensor's own name for a whole one, so that other tools find it; else with its
    offsets."""
    data = item.tensor_data
    if data is None:
        raise TypeError(f"{item.index.fqn} is not a tensor")
    if data.chunk.sizes == data.size:
        return item.index.fqn
    return f"{item.index.fqn}@{','.join(map(str, data.chunk.offsets))}"


def _split(parts: list[_Part], limit: int) -> Iterator[list[_Part]]:
    group: list[_Part] = []
    size = 0
    for part in parts:
        if group and size + part.size > limit:
            yield group
            group, size = [], 0
        group.append(part)
        size += part.size
    if group:
        yield group


def _encode_file(parts: list[_Part]) -> Iterator[Any]:
    """Yield the bytes of one file."""
    by_key: dict[str, _Part] = {}
    for part in parts:
        if by_key.setdefault(part.key, part) is not part:
            raise ValueError(f"two tensors of a file are called {part.key}")
    forms = {key: (part.tensor.dtype, part.tensor.shape) for key, part in by_key.items()}
    order, header = encode_header(forms)
    yield header
    for key in order:
        yield by_key[key].tensor.reshape(-1).view(torch.uint8).numpy()
