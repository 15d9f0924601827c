"""Distributed Checkpoint's metadata as JSON in a schema of our own: `state.json`.

    {"tensors": {"model/layer.weight": {
         "dtype": "F32", "shape": [4, 2],
         "chunks": [{"offsets": [0, 0], "sizes": [4, 2],
                     "file": "tensors-00000-00000.safetensors", "key": "model/layer.weight"}]}},
     "values": {"optimizer/state/0/step": 3},
     "rank_values": {"1": {"optimizer/state/0/step": 4}}}

A chunk is a block of a tensor that one rank wrote; together the chunks make the whole tensor,
however it was sharded. `rank_values` holds what a rank has different from `values`.
"""

import json
from dataclasses import dataclass, field
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from trainhall.training.checkpoint.format.errors import BadCheckpointError, Problem
from trainhall.training.checkpoint.state import Plain, from_json, to_json

INDEX = "state.json"

DTYPES: dict[str, torch.dtype] = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "U16": torch.uint16,
    "I16": torch.int16,
    "U32": torch.uint32,
    "I32": torch.int32,
    "U64": torch.uint64,
    "I64": torch.int64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "C64": torch.complex64,
}
"""Names of element types in safetensors."""

DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def dtype_name(dtype: torch.dtype, tensor: str) -> str:
    """Return the name in safetensors.

    Raises:
        TypeError: safetensors has none.
    """
    try:
        return DTYPE_NAMES[dtype]
    except KeyError:
        raise TypeError(f"{tensor} has the dtype {dtype}, which safetensors cannot hold") from None


@dataclass(frozen=True)
class StoredChunk:
    """The position of a chunk."""

    file: str
    key: str


@dataclass
class Index:
    """Everything that `state.json` says."""

    metadata: Metadata
    """`storage_data` maps every chunk's index to its `StoredChunk`."""
    values: dict[str, Plain] = field(default_factory=dict)
    rank_values: dict[int, dict[str, Plain]] = field(default_factory=dict)

    def values_of(self, rank: int) -> dict[str, Plain]:
        """Return the values of one rank; of one that did not exist then, the common ones."""
        return {**self.values, **self.rank_values.get(rank, {})}


class _Chunk(BaseModel):
    model_config = ConfigDict(strict=True)
    offsets: list[int]
    sizes: list[int]
    file: str
    key: str


class _Tensor(BaseModel):
    model_config = ConfigDict(strict=True)
    dtype: str
    shape: list[int]
    chunks: list[_Chunk]


class _Document(BaseModel):
    tensors: dict[str, _Tensor]
    values: dict[str, Any] = {}
    rank_values: dict[int, dict[str, Any]] = {}


def encode_index(index: Index) -> bytes:
    """Encode the bytes of `state.json`."""
    tensors: dict[str, Any] = {}
    for name, entry in sorted(index.metadata.state_dict_metadata.items()):
        if isinstance(entry, BytesStorageMetadata):
            raise TypeError(f"{name} is not a tensor; pass it as a value, which is kept as JSON")
        chunks = []
        for chunk in entry.chunks:
            stored: StoredChunk = index.metadata.storage_data[MetadataIndex(name, chunk.offsets)]
            chunks.append(
                {
                    "offsets": list(chunk.offsets),
                    "sizes": list(chunk.sizes),
                    "file": stored.file,
                    "key": stored.key,
                }
            )
        tensors[name] = {
            "dtype": dtype_name(entry.properties.dtype, name),
            "shape": list(entry.size),
            "chunks": chunks,
        }
    document = {
        "tensors": tensors,
        "values": to_json(index.values, "values"),
        "rank_values": {
            str(rank): to_json(values, "values") for rank, values in index.rank_values.items()
        },
    }
    return json.dumps(document, ensure_ascii=False, allow_nan=False).encode()


def decode_index(data: bytes) -> Index:
    """Parse `state.json`.

    Raises:
        BadCheckpointError: it is not what `encode_index` writes.
    """
    try:
        document = _Document.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise BadCheckpointError([Problem(INDEX, f"a valid {where}", first["msg"])]) from error
    entries: dict[str, Any] = {}
    storage: dict[MetadataIndex, StoredChunk] = {}
    for name, tensor in document.tensors.items():
        if tensor.dtype not in DTYPES:
            raise BadCheckpointError([Problem(INDEX, "a dtype of safetensors", tensor.dtype)])
        chunks = []
        for chunk in tensor.chunks:
            offsets = torch.Size(chunk.offsets)
            chunks.append(ChunkStorageMetadata(offsets, torch.Size(chunk.sizes)))
            storage[MetadataIndex(name, offsets)] = StoredChunk(chunk.file, chunk.key)
        entries[name] = TensorStorageMetadata(
            TensorProperties(dtype=DTYPES[tensor.dtype]), torch.Size(tensor.shape), chunks
        )
    return Index(
        Metadata(state_dict_metadata=entries, storage_data=storage),
        from_json(document.values),
        {rank: from_json(values) for rank, values in document.rank_values.items()},
    )
