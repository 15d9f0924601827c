"""Files that simulated jobs have written, stored as those of real hosts are."""

import csv
import hashlib
import io
import itertools
import json
import math
from collections.abc import AsyncIterator, Mapping

from sqlalchemy import select

from trainhall.cluster.coordinator import Coordinator
from trainhall.cluster.lifecycle.states import JobState
from trainhall.cluster.wire.outputs import Commit, File
from trainhall.db.models import Job

MAX_JOBS = 4
"""So many of the newest jobs have files: each is made durable, which takes time."""
_STATES = (JobState.RUNNING.value, JobState.COMPLETED.value)
_STEPS = (100, 200, 300)
_BINS = 32


async def write_outputs(coordinator: Coordinator) -> None:
    """Store files of some jobs that have an attempt."""
    newest = (
        select(Job.id, Job.name, Job.attempt)
        .where(Job.state.in_(_STATES), Job.attempt > 0, Job.experiment_id.is_(None))
        .order_by(Job.number.desc())
        .limit(MAX_JOBS)
    )
    async with coordinator.db.session() as session:
        jobs = (await session.execute(newest)).all()
    for job_id, name, attempt in jobs:
        await _write(coordinator, job_id, attempt, _files(name))


async def _write(
    coordinator: Coordinator, job_id: str, attempt: int, contents: Mapping[str, bytes]
) -> None:
    uploads, files = coordinator.outputs.uploads, []
    for path, content in contents.items():
        sha256 = hashlib.sha256(content).hexdigest()
        await uploads.receive(job_id, attempt, sha256, _once(content), size=len(content))
        now = coordinator.clock.now()
        files.append(File(path=path, size=len(content), sha256=sha256, modified_at=now))
    await uploads.commit(job_id, attempt, Commit(rank=0, files=files))


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content


def _files(name: str) -> dict[str, bytes]:
    """Return files as a script writes them, by their paths."""
    rows = [["id", "label", "predicted", "score"]]
    rows += [
        [str(i), str(i % 10), str((i * 7) % 10), f"{0.5 + i % 50 / 100:.2f}"] for i in range(40)
    ]
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows(rows)
    files = {
        "README.md": f"# {name}\n\nPredictions are in `results/predictions.csv`.\n",
        "results/predictions.csv": table.getvalue(),
        "results/config.json": json.dumps({"hidden": [64, 64], "dropout": 0.1}),
    }
    for step in _STEPS:
        files[f"media/weights/{step}.json"] = json.dumps(_histogram(step))
    return {path: text.encode() for path, text in files.items()}


def _histogram(step: int) -> dict[str, object]:
    """Return a normal distribution, wider with each step."""
    width = 0.2 + step / 1000
    edges = [-1 + 2 * i / _BINS for i in range(_BINS + 1)]
    middles = [(low + high) / 2 for low, high in itertools.pairwise(edges)]
    counts = [round(1000 * math.exp(-((x / width) ** 2) / 2)) for x in middles]
    return {"kind": "histogram", "counts": counts, "edges": edges, "nonfinite": 0}
