"""A checkpoint of one strategy and world size loads into another, bit for bit."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support.cluster.attempts import RankServer
from support.storage.data_files import SMALL_TEXT

MODEL = {
    "name": "language_model",
    "params": {"files": SMALL_TEXT, "size": "tiny", "context": 8, "dropout": 0.1},
}


def spec(workers: int, parallelism: dict[str, Any]) -> dict[str, Any]:
    return {
        "task": MODEL,
        "resources": {"workers": workers},
        "parallelism": parallelism,
        "training": {"steps": 2, "global_batch_size": 24, "gradient_clip": 1.0, "seed": 5},
    }


Loaded = tuple[dict[str, torch.Tensor], dict[str, Any], dict[int, Any]]


def load(ranks: RankServer, folder: Path, attempt: int, name: str, job: dict[str, Any]) -> Loaded:
    found = ranks.run(
        folder, job, attempt=attempt, resume=[name], function="support.ranks.trace:loaded"
    )
    assert set(found.codes) == {0}, found.stderr()
    path = found.folder.path
    random = {int(p.stem[6:]): json.loads(p.read_text()) for p in path.glob("random*.json")}
    facts = json.loads((path / "facts.json").read_text())
    return load_file(path / "loaded.safetensors"), facts, random


DDP = (4, {"strategy": "ddp"})
FSDP2 = (2, {"strategy": "fsdp"})
FSDP3 = (3, {"strategy": "fsdp"})
TENSOR = (4, {"strategy": "tensor", "tensor": 2, "sequence_parallel": True})
BOTH = (4, {"strategy": "fsdp", "tensor": 2})
PIPELINE = (2, {"strategy": "pipeline"})
ZBV = (4, {"strategy": "pipeline", "schedule": "zbv", "data": 2})
SERVERS = (4, {"strategy": "parameter_server", "servers": 2})
PIPELINE_TENSOR = (4, {"strategy": "pipeline", "tensor": 2})
HYBRID = (4, {"strategy": "fsdp", "data": 2})


@pytest.mark.parametrize(
    ("saved", "others"),
    [
        pytest.param(DDP, [FSDP3, HYBRID, TENSOR], id="ddp to others"),
        pytest.param(FSDP3, [FSDP2, BOTH], id="fsdp to others"),
        pytest.param(BOTH, [FSDP3], id="fsdp × tensor to others"),
        pytest.param(TENSOR, [DDP, PIPELINE], id="tensor to others"),
        pytest.param(ZBV, [PIPELINE, SERVERS], id="pipeline to others"),
        pytest.param(PIPELINE_TENSOR, [FSDP3, ZBV], id="pipeline × tensor to others"),
        pytest.param(SERVERS, [PIPELINE_TENSOR], id="parameter_server to others"),
    ],
)
def test_checkpoint_reshards_bit_exactly(
    ranks: RankServer,
    tmp_path: Path,
    saved: tuple[int, dict[str, Any]],
    others: list[tuple[int, dict[str, Any]]],
) -> None:
    run = ranks.run(tmp_path, spec(*saved))
    assert set(run.codes) == {0}, run.stderr()
    name = run.event("checkpoint")["name"]
    # One rank alone reads it without any sharding.
    tensors, facts, _ = load(ranks, tmp_path, 2, name, spec(1, {"strategy": "ddp"}))
    assert facts["step"] == 2
    assert facts["sha256"] == run.event("completed")["weights_sha256"]
    assert any(name.startswith("optimizer/") and t.abs().max() > 0 for name, t in tensors.items())
    _, _, random = load(ranks, tmp_path, 3, name, spec(*saved))
    for attempt, other in enumerate(others, start=4):
        found, reported, streams = load(ranks, tmp_path, attempt, name, spec(*other))
        assert reported == facts
        assert found.keys() == tensors.keys()
        for key, tensor in tensors.items():
            assert torch.equal(found[key], tensor), key
        for stream in random.keys() & streams.keys():
            assert streams[stream] == random[stream]
