"""The built-in tasks, and the digest of their weights."""

import hashlib
import importlib.util
import random

import numpy as np
import pytest
import torch
from support.tasks.data_sets import in_memory
from torch import nn

from trainhall.training.common import random_state
from trainhall.training.common.weights_hash import weights_sha256
from trainhall.training.spec.parse import validate_spec
from trainhall.training.tasks import build_task
from trainhall.training.tasks.base import TaskUnavailableError
from trainhall.training.tasks.digits import load_digits


def test_digits_match_scikit_learn() -> None:
    images, labels = load_digits()
    assert images.shape == (1797, 64)
    assert labels[:10].tolist() == list(range(10))
    assert (images.min().item(), images.max().item()) == (0.0, 1.0)
    assert torch.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_digits_report_missing_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(TaskUnavailableError, match="pip install"):
        load_digits()


def test_validation_images_are_never_trained_on() -> None:
    task = build_task(validate_spec({"name": "x", "task": {"name": "digits"}}))
    assert task.eval_data is not None
    assert len(task.train_data) + len(task.eval_data) == 1797
    rows = [
        tuple(row)
        for data in (task.train_data, task.eval_data)
        for row in in_memory(data).batch(torch.arange(len(data)))[0].tolist()
    ]
    images, _ = load_digits()
    assert sorted(rows) == sorted(tuple(row) for row in images.tolist())


@pytest.mark.parametrize("features", [1, 32, 1_048_576])
def test_synthetic_data_of_any_size_fits_into_memory(features: int) -> None:
    params = {"samples": 100_000_000, "features": features, "hidden": []}
    task = build_task(validate_spec({"name": "x", "task": {"name": "synthetic", "params": params}}))
    assert len(task.train_data) == 100_000_000
    inputs, targets = in_memory(task.train_data).batch(torch.tensor([0, 99_999_999]))
    assert inputs.shape == (2, features)
    assert targets.shape == (2, 1)
    assert targets.isfinite().all()


def test_weights_digest_follows_its_definition() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).double()
    model[0].to(torch.bfloat16)
    expected = hashlib.sha256()
    state = model.state_dict()
    assert "1.num_batches_tracked" in state
    for name in sorted(state):
        if state[name].is_floating_point():
            expected.update(name.encode() + b"\0")
            expected.update(bytes(state[name].reshape(-1).view(torch.uint8).tolist()))
    assert weights_sha256(sorted(model.state_dict().items())) == expected.hexdigest()


def test_random_state_is_restored() -> None:
    def draw() -> list[float]:
        return [random.gauss(0, 1), float(np.random.standard_normal()), torch.rand(1).item()]

    device = torch.device("cpu")
    random_state.seed_everything(3)
    draw()
    state = random_state.capture(device)
    expected = [draw(), draw()]
    random_state.seed_everything(4)
    random_state.restore(state, device)
    assert [draw(), draw()] == expected
