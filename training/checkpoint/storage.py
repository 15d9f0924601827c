"""Storage of tensors in safetensors files within a `Draft`.

The planners of torch.distributed.checkpoint decide which rank writes and reads which part of which
tensor; here the parts become bytes and back. Every rank writes files of its own. The format is that
of https://github.com/huggingface/safetensors: the length of the header as a little-endian u64, the
header in JSON, then the tensors without a gap.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import MetadataIndex, TensorStorageMetadata
from torch.distributed.checkpoint.planner import ReadItem, WriteItem

from trainhall.training.checkpoint.format.draft import Draft
from trainhall.training.checkpoint.format.errors import BadCheckpointError, Problem
from trainhall.training.checkpoint.format.manifest import (
    Manifest,
    open_within,
    read_manifest,
    verify_files,
)
from trainhall.training.checkpoint.header import encode_header
from trainhall.training.checkpoint.index import DTYPE_NAMES, INDEX, StoredChunk, decode_index

MAX_FILE_BYTES = 2 * 1024**3
"""A rank begins a new file before one would grow beyond this (a single tensor may be larger)."""


_Part = tuple[str, Tensor]
"""A chunk on its way to a file, and its key there."""


def write_tensors(
    draft: Draft, rank: int, items: Sequence[WriteItem], copies: Mapping[MetadataIndex, Tensor]
) -> dict[MetadataIndex, StoredChunk]:
    """Write the copies of what the plan gives this rank, and return where each is.

    Those that share their memory (tied weights) are written once.
    """
    parts: dict[Any, _Part] = {}
    owner: dict[MetadataIndex, Any] = {}
    for item in items:
        tensor = copies[item.index].detach()
        identity = same_memory(tensor) or item.index
        owner[item.index] = identity
        if identity not in parts:
            parts[identity] = _key(item), _bytes_in_order(tensor)
    stored: dict[str, StoredChunk] = {}
    for i, group in enumerate(_split(list(parts.values()), MAX_FILE_BYTES)):
        file = f"tensors-{rank:05d}-{i:05d}.safetensors"
        draft.write(file, _encode_file(group))
        stored |= {key: StoredChunk(file, key) for key, _ in group}
    return {index: stored[parts[identity][0]] for index, identity in owner.items()}


class SafetensorsReader:
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

    def read(self, tensors: Mapping[str, Tensor]) -> None:
        """Fill tensors by name, each whole or, as a DTensor, with this rank's shard."""
        planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
        planner.set_up_planner(dict(tensors), self.index.metadata, is_coordinator=True)
        by_file: dict[str, list[ReadItem]] = defaultdict(list)
        for item in planner.create_local_plan().items:
            by_file[self._storage[item.storage_index].file].append(item)
        for file, items in by_file.items():
            with safe_open(self.folder / file, framework="pt", device="cpu") as stored:
                for item in items:
                    tensor = stored.get_tensor(self._storage[item.storage_index].key)
                    for dim, (start, length) in enumerate(
                        zip(item.storage_offsets, item.lengths, strict=True)
                    ):
                        tensor = tensor.narrow(dim, start, length)
                    planner.resolve_tensor(item).detach().copy_(tensor)

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
        _, tensor = part
        if group and size + tensor.nbytes > limit:
            yield group
            group, size = [], 0
        group.append(part)
        size += tensor.nbytes
    if group:
        yield group


def _encode_file(parts: list[_Part]) -> Iterator[Any]:
    """Yield the bytes of one file."""
    by_key: dict[str, Tensor] = {}
    for key, tensor in parts:
        if by_key.setdefault(key, tensor) is not tensor:
            raise ValueError(f"two tensors of a file are called {key}")
    forms = {key: (tensor.dtype, tensor.shape) for key, tensor in by_key.items()}
    order, header = encode_header(forms)
    yield header
    for key in order:
        yield by_key[key].reshape(-1).view(torch.uint8).numpy()
