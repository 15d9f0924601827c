"""Commits a checkpoint and deletes the one before it; a test kills it at any system call.

python -m support.storage.checkpoint_writer FOLDER ATTEMPT STEP
"""

import os
import sys
from pathlib import Path

from trainhall.training.checkpoint.format.draft import Draft
from trainhall.training.checkpoint.format.manifest import Manifest
from trainhall.training.checkpoint.format.removal import remove_leftovers, retire
from trainhall.training.fencing import FencingToken
from trainhall.training.spec.recovery import CheckpointSpec


def write(folder: Path, attempt: int, step: int, job_id: str = "job") -> None:
    token = FencingToken(job_id, attempt, 1)
    remove_leftovers(folder, token)
    draft = Draft.create(folder, token, step)
    for i in range(2):
        draft.write(f"tensors-{i}.safetensors", [bytes([i]) * 5000, b"end"])
    manifest = Manifest(
        job_id=token.job_id,
        attempt=attempt,
        generation=1,
        step=step,
        created_at="2026-01-01T00:00:00Z",
        world_size=1,
        files=draft.files,
    )
    draft.commit(manifest)
    retire(folder, CheckpointSpec(keep_latest=1))


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    os._exit(0)
