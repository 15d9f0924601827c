"""Data workers read the same batches as the rank would, and end with it."""

import os
import random
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from support.cluster.attempts import Attempt, RankServer
from support.tasks.own import Numbers, Plain
from support.waiting import eventually

from trainhall.training.common.sample_order import Sampler
from trainhall.training.data.batch_reader import Reader, Request
from trainhall.training.data.loader import Loader, Share, Workers, eval_batches
from trainhall.training.data.prefetch import AVAILABLE, Prefetcher
from trainhall.training.link.control import Control
from trainhall.training.link.launch import Command
from trainhall.training.link.status import EXIT_PAUSED
from trainhall.training.spec.parse import validate_spec
from trainhall.training.tasks.own import CheckedTask

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="batches are read in the rank here")


def ledger(folder: Path, workers: int, **training: Any) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    return {
        "task": {"name": "support.tasks.own:Ledger", "params": {"folder": str(folder)}},
        "resources": {"workers": workers},
        "training": {"steps": 18, "global_batch_size": 8, "seed": 5, **training},
    }


def lines(folder: Path) -> list[str]:
    return sorted((folder / "ledger").read_text().splitlines())


def names(attempt: Attempt) -> list[str]:
    return [e["data"]["name"] for e in reversed(attempt.events(kind="checkpoint"))]


def test_samples_are_equal_for_any_workers(ranks: RankServer, tmp_path: Path) -> None:
    alone = ranks.run(tmp_path / "a", ledger(tmp_path / "alone", 1, data_workers=0))
    assert alone.codes == [0], alone.stderr()
    expected = lines(tmp_path / "alone")
    assert len(expected) == 18 * 8
    # Each epoch of 5 batches takes every sample once, each time varied differently.
    assert len({line.split()[0] for line in expected}) == 40
    assert len(set(expected)) == 18 * 8

    spec = ledger(tmp_path / "together", 2, data_workers=2, data_prefetch=3)
    attempt = ranks.run(tmp_path / "b", spec, command=Command.PAUSE)
    for number in (2, 3):
        assert attempt.codes == [EXIT_PAUSED] * 2, attempt.stderr()
        attempt = ranks.run(
            tmp_path / "b", spec, attempt=number, resume=names(attempt), command=Command.PAUSE
        )
    last = ranks.run(tmp_path / "b", spec, attempt=4, resume=names(attempt))
    assert last.codes == [0, 0], last.stderr()
    assert lines(tmp_path / "together") == expected


def test_data_workers_do_not_change_weights(ranks: RankServer, tmp_path: Path) -> None:
    spec = ledger(tmp_path / "x", 2, data_workers=0, gradient_accumulation=2)
    whole = ranks.run(tmp_path / "a", spec)
    assert whole.codes == [0, 0], whole.stderr()
    spec["training"] |= {"data_workers": 3, "data_prefetch": 1}
    paused = ranks.run(tmp_path / "b", spec, command=Command.PAUSE)
    resumed = ranks.run(tmp_path / "b", spec, attempt=2, resume=names(paused))
    assert resumed.codes == [0, 0], resumed.stderr()
    for key in ("weights_sha256", "steps"):
        assert resumed.event("completed")[key] == whole.event("completed")[key]
    evaluated = [a.event("completed")["metrics"]["eval_loss"] for a in (whole, resumed)]
    assert evaluated[0] == evaluated[1]


def pids(folder: Path, kind: str) -> list[int]:
    return [int(path.name.partition("-")[2]) for path in folder.glob(f"{kind}-*")]


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def running(ranks: RankServer, tmp_path: Path) -> Iterator[tuple[Path, Any]]:
    """A job of one rank that trains without end, with two data workers that have read something."""
    folder = tmp_path / "job"
    spec = ledger(folder, 1, steps=10**9, data_workers=2)
    spec["task"]["name"] = "support.tasks.own:Slow"
    attempt = ranks.start(tmp_path, spec)
    eventually("both workers", lambda: len(pids(folder, "reader")) == 2)
    eventually("the first step", (folder / "ledger").exists)
    yield folder, attempt
    Control(attempt.control).send(Command.STOP)
    ranks.wait(attempt)


def test_workers_end_with_a_rank_that_is_killed(running: tuple[Path, Any]) -> None:
    folder, _ = running
    (rank,) = pids(folder, "rank")
    os.kill(rank, signal.SIGKILL)
    for worker in pids(folder, "reader"):
        eventually(f"the end of worker {worker}", partial(gone, worker))


def test_killed_data_worker_is_reported(ranks: RankServer, running: tuple[Path, Any]) -> None:
    folder, attempt = running
    worker = pids(folder, "reader")[0]
    os.kill(worker, signal.SIGKILL)
    found = Attempt(attempt, [])
    (failure,) = eventually(
        "the failure", lambda: attempt.events(0).exists() and found.events(kind="failure")
    )
    assert failure["data"]["type"] == "DataWorkerDiedError"
    assert failure["data"]["worker_signal"] == signal.SIGKILL
    message = failure["data"]["message"]
    assert f"(process {worker}) was ended by SIGKILL; if the host is short of memory" in message


@pytest.mark.processes
def test_exited_data_worker_is_reported() -> None:
    ahead = Prefetcher(lambda _: os._exit(3), requests(4), workers=1, prefetch=1)
    with pytest.raises(RuntimeError, match="ended with exit code 3"):
        ahead.next()
    ahead.close()


def requests(number: int) -> list[Request]:
    return [Request(0, torch.arange(i, i + 3)) for i in range(number)]


@pytest.mark.processes
def test_data_workers_keep_batch_order() -> None:
    def read(request: Request) -> Any:
        start = int(request.indices[0])
        shape = (start % 3 + 1) * 100
        return {
            "floats": torch.full((shape, 3), start, dtype=torch.bfloat16),
            "flags": (torch.tensor([True, False]), [torch.arange(start), f"text {start}"]),
            "empty": torch.empty(0, 4),
            "scalar": torch.tensor(start),
            "strided": torch.arange(6).view(2, 3).t(),
            "conjugate": torch.full((2,), start + 1j).conj(),
            "array": np.arange(start, dtype=np.float32),
            "request": request,
        }

    ahead = Prefetcher(read, requests(30), workers=3, prefetch=2)
    kept = [ahead.next() for _ in range(30)]
    ahead.close()
    for request, batch in zip(requests(30), kept, strict=True):
        expected = read(request)
        assert batch.keys() == expected.keys()
        for key in ("floats", "empty", "scalar", "strided", "conjugate"):
            assert batch[key].dtype == expected[key].dtype
            assert torch.equal(batch[key], expected[key])
        np.testing.assert_array_equal(batch["array"], expected["array"])
        assert torch.equal(batch["request"].indices, request.indices)
        flags, (numbers, text) = batch["flags"]
        assert flags.tolist() == [True, False]
        assert torch.equal(numbers, torch.arange(int(request.indices[0])))
        assert text == f"text {request.indices[0]}"


@pytest.mark.processes
def test_data_workers_reuse_only_free_memory() -> None:
    ahead = Prefetcher(
        lambda request: request.indices.double().repeat(1000),
        requests(200),
        workers=1,
        prefetch=2,
    )
    kept = {}
    for i in range(200):
        batch = ahead.next()
        assert batch[:3].tolist() == [i, i + 1, i + 2]
        if i % 50 == 0:
            kept[i] = batch[1:2]  # a view keeps the whole batch
    assert {i: view.item() for i, view in kept.items()} == {i: i + 1 for i in kept}
    (worker,) = ahead._workers
    assert len(worker.slots) <= 4 + len(kept)
    ahead.close()


def test_data_workers_leave_rank_random_state() -> None:
    reader = Reader(plain(), Numbers(8), 1)
    torch.manual_seed(3)
    expected = torch.rand(2).tolist()
    torch.manual_seed(3)
    reader.read(Request(0, torch.arange(4)))
    assert torch.rand(2).tolist() == expected


class Drawing:
    """Gives whole batches, and draws random numbers for them."""

    def __len__(self) -> int:
        return 64

    def batch(self, indices: torch.Tensor) -> torch.Tensor:
        drawn = [torch.rand(()).item(), random.random(), np.random.random()]
        return torch.tensor([drawn]) + indices[:, None]


class DrawingTask(Plain):
    def __init__(self) -> None:
        super().__init__({}, None)
        self.train_data = Drawing()


@pytest.mark.processes
@pytest.mark.parametrize("checked", [False, True])
def test_batch_random_numbers_ignore_the_worker(checked: bool) -> None:
    task = CheckedTask(DrawingTask(), "lab:DrawingTask") if checked else DrawingTask()
    reader = Reader(task, task.train_data, 1)
    torch.manual_seed(0)
    before = torch.rand(1)
    torch.manual_seed(0)
    expected = [reader.read(r) for r in requests(6)]
    assert torch.equal(torch.rand(1), before)
    assert len({float((batch[0, 0]) % 1) for batch in expected}) == 6
    for workers in (1, 3):
        ahead = Prefetcher(reader.read, requests(6), workers=workers, prefetch=2)
        found = [ahead.next() for _ in range(6)]
        ahead.close()
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    later = reader.read(Request(1, requests(1)[0].indices))
    assert not torch.equal(later, expected[0])


@pytest.mark.processes
def test_data_worker_has_its_own_process_name() -> None:
    name = Path("/proc/self/comm")
    before = name.read_text()
    name.write_text("rank 7 4f2a")
    try:
        ahead = Prefetcher(lambda _: name.read_text(), requests(1), workers=1, prefetch=1)
        assert ahead.next().strip() == "data 7 4f2a"
        ahead.close()
        assert name.read_text().strip() == "rank 7 4f2a"
    finally:
        name.write_text(before)


def test_data_worker_count_follows_data_and_host() -> None:
    training = validate_spec({"name": "x", "task": {"name": "digits"}}).training
    in_memory = Reader(plain(), plain().train_data, 0)
    read_one_by_one = Reader(plain(), Numbers(8), 0)
    cores = len(os.sched_getaffinity(0))
    assert Workers.wanted(training, in_memory, 1).number == 0
    assert Workers.wanted(training, read_one_by_one, 1).number == min(max(1, cores - 1), 8)
    assert Workers.wanted(training, read_one_by_one, 10**6).number == 1
    wanted = training.model_copy(update={"data_workers": 5})
    assert Workers.wanted(wanted, in_memory, 1).number == 5


@pytest.mark.processes
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_sampler_position_excludes_prefetched_batches(workers: int) -> None:
    sampler = Sampler(40, 8, 0)
    share = Share(0, 1, 2)
    loader = Loader(Reader(plain(), Numbers(40), 0), sampler, share, Workers(workers, 4), str)
    walked = Sampler(40, 8, 0)
    for step in range(1, 8):
        expected = [indices.tolist() for indices in walked.next_batch(0, 1, 2)]
        assert [batch["id"].tolist() for batch in loader.step()] == expected
        assert sampler.state() == walked.state(), step
    loader.close()


@pytest.mark.processes
@pytest.mark.parametrize("workers", [0, 2, 9])
def test_validation_samples_are_read_once_each(workers: int) -> None:
    reader = Reader(plain(), Numbers(11), 0)
    seen = []
    for _, size, batch in eval_batches(reader, 11, Share(1, 2), Workers(workers, 1), 2, str):
        assert len(batch["id"]) == size
        seen += batch["id"].tolist()
    assert seen == [1, 3, 5, 7, 9]


def plain() -> Plain:
    return Plain({}, None)
