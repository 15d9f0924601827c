"""A small checkpoint as hosts upload it."""

import hashlib
from collections.abc import AsyncIterator

from trainhall.cluster.checkpoints.store import CheckpointStore
from trainhall.training.checkpoint.format.manifest import FileRecord, Manifest, encode_manifest

NAME = "step-00000010-a1-g1"
FILES = {"model/rank-0.safetensors": b"weights" * 1000, "state.json": b"{}"}
"""By their paths within its folder."""


async def pieces(data: bytes, size: int = 7) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


def manifest(files: dict[str, bytes], job_id: str = "job", step: int = 10) -> bytes:
    return encode_manifest(
        Manifest(
            job_id=job_id,
            attempt=1,
            generation=1,
            step=step,
            created_at="2026-01-01T00:00:00Z",
            world_size=1,
            files=[
                FileRecord(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest())
                for path, data in files.items()
            ],
        )
    )


async def upload(
    store: CheckpointStore, files: dict[str, bytes] = FILES, job_id: str = "job"
) -> None:
    for path, data in files.items():
        digest = hashlib.sha256(data).hexdigest()
        await store.put(job_id, NAME, path, pieces(data), sha256=digest)
    await store.put(job_id, NAME, "manifest.json", pieces(manifest(files, job_id)))


async def upload_and_commit(store: CheckpointStore) -> None:
    await upload(store)
    await store.commit("job", NAME)
