"""The copy of a state from GPUs to host memory, tested without one."""

import gc
from collections.abc import Sequence
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from trainhall.training.checkpoint.staging import Staging


class FakeRuntime:
    """Of CUDA: what is locked, and not released yet."""

    def __init__(self, error: int = 0) -> None:
        self.error = error
        self.locked: dict[int, int] = {}

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:  # noqa: N802
        if self.error == 0:
            self.locked[address] = size
        return self.error

    def cudaHostUnregister(self, address: int) -> None:  # noqa: N802
        del self.locked[address]


class OnGpu:
    """What a copy asks of a tensor, of one on a GPU."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self.shape, self.dtype = torch.Size([4]), torch.float32

    def numel(self) -> int:
        return 4

    def element_size(self) -> int:
        return 4


def states() -> list[Tensor]:
    return [torch.arange(5.0), torch.ones(3, 7, dtype=torch.float64)]


def test_staging_locks_only_needed_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtime = FakeRuntime()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    staging = Staging()
    staging.reserve(states(), pinned=True)
    assert list(runtime.locked.values()) == [64 + 192]
    copies = staging.copy(states())
    assert all(torch.equal(a, b) for a, b in zip(copies, states(), strict=True))
    staging.reserve([torch.ones(1)], pinned=True)
    assert list(runtime.locked.values()) == [64]
    del staging, copies
    gc.collect()
    assert not runtime.locked


def test_staging_works_without_locked_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = []

    def refuse() -> FakeRuntime:
        asked.append(1)
        return FakeRuntime(error=2)

    monkeypatch.setattr(torch.cuda, "cudart", refuse)
    monkeypatch.setattr(torch, "ones", lambda *_, **__: None)
    staging = Staging()
    state = [torch.arange(5.0)]
    for _ in range(2):
        staging.reserve(state, pinned=True)
        assert torch.equal(staging.copy(state)[0], state[0])
    assert len(asked) == len(caplog.records) == 1


def test_every_gpu_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = FakeRuntime()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    waited: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    copied: list[bool] = []
    monkeypatch.setattr(
        Tensor, "copy_", lambda *_, non_blocking: copied.append(non_blocking), raising=True
    )
    state = cast("Sequence[Tensor]", [cast("Any", OnGpu(f"cuda:{n}")) for n in (0, 1)])
    staging = Staging()
    staging.reserve(state, pinned=True)
    staging.copy(state)
    assert copied == [True, True]
    assert sorted(map(str, waited)) == ["cuda:0", "cuda:1"]
