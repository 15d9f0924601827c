"""Checkpoints as simulated ranks write them: whole and verifiable, with weights that are noise.

On shared storage only the record exists, with the size that the job's model would have. What goes
to the coordinator's store is real and small.
"""

import hashlib
import json
import struct
from datetime import UTC, datetime
from typing import Any

import numpy as np

from trainhall.cluster.simulator.spool import Files
from trainhall.training.checkpoint.format.manifest import FileRecord, Manifest, encode_manifest
from trainhall.training.checkpoint.format.names import MANIFEST, CheckpointName
from trainhall.training.link.launch import Launch

_TENSORS = "tensors-00000-00000.safetensors"
_INDEX = "state.json"
_SHAPE = (32, 32)


def save(
    launch: Launch, name: CheckpointName, metrics: dict[str, float], time: float, size: int
) -> tuple[dict[str, Any], Files | None]:
    """Return the data of the rank event `checkpoint`, and the files to upload, the manifest last.

    Args:
        time: seconds since the epoch.
        size: bytes that the real one would have.
    """
    if not launch.checkpoint.upload:
        record = _record(_TENSORS, f"{launch.job_id}/{name}".encode(), size)
        return _event(name, size, [record], metrics), None
    contents = {_TENSORS: _tensors(launch.job_id, name.step), _INDEX: _index()}
    manifest = Manifest(
        job_id=launch.job_id,
        attempt=launch.attempt,
        generation=launch.generation,
        step=name.step,
        created_at=datetime.fromtimestamp(time, UTC).isoformat().replace("+00:00", "Z"),
        world_size=launch.world_size,
        mesh={"data": launch.world_size},
        metrics=metrics,
        extra={"step": name.step},
        files=[_record(path, data, len(data)) for path, data in contents.items()],
    )
    files = {**contents, MANIFEST: encode_manifest(manifest)}
    records = [_record(path, data, len(data)) for path, data in files.items()]
    return _event(name, sum(r.size for r in records), records, metrics), files


def _event(
    name: CheckpointName, size: int, files: list[FileRecord], metrics: dict[str, float]
) -> dict[str, Any]:
    return {
        "name": str(name),
        "step": name.step,
        "size": size,
        "files": [file.model_dump() for file in files],
        "metrics": metrics,
    }


def _record(path: str, data: bytes, size: int) -> FileRecord:
    return FileRecord(path=path, size=size, sha256=hashlib.sha256(data).hexdigest())


def _tensors(job_id: str, step: int) -> bytes:
    """Build a layer in safetensors format: u64 header length, JSON header, data."""
    digest = hashlib.sha256(f"{job_id}/{step}".encode()).digest()
    chance = np.random.default_rng(int.from_bytes(digest[:8], "little"))
    data = chance.normal(0, 0.05, _SHAPE).astype("<f4").tobytes()
    header = json.dumps(
        {"model/0.weight": {"dtype": "F32", "shape": _SHAPE, "data_offsets": [0, len(data)]}}
    ).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + data


def _index() -> bytes:
    chunk = {"offsets": [0, 0], "sizes": _SHAPE, "file": _TENSORS, "key": "model/0.weight"}
    tensors = {"model/0.weight": {"dtype": "F32", "shape": _SHAPE, "chunks": [chunk]}}
    return json.dumps({"tensors": tensors, "values": {}, "rank_values": {}}).encode()
