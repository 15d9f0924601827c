"""Every sample of an epoch counts once, however often a job is interrupted and resized.

Steps that count are those on the surviving line of checkpoints: what a killed attempt trained on
behind the checkpoint that the next one starts from is lost, and trained on again.
"""

import copy
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from support.cluster.attempts import Attempt, RankServer
from support.examples import share_of
from support.tasks.counted import Counted, CountedTask, ledger

from trainhall.training.checkpoint.format.names import scan
from trainhall.training.common.sample_order import Sampler, epoch_order
from trainhall.training.data.batch_reader import Reader
from trainhall.training.data.loader import Loader, Share, Workers

Ledger = dict[int, list[int]]
"""By step the samples of all ranks, in the order of ranks."""

REAL_INTERRUPTIONS = int(os.environ.get("TRAINHALL_TEST_INTERRUPTIONS", "6"))
"""Of real ranks; half a second each."""


def check(found: Ledger, *, size: int, batch: int, seed: int) -> None:
    """See that steps follow each other, and that each epoch holds each of its samples once."""
    assert sorted(found) == list(range(1, len(found) + 1))
    steps = size // batch
    for first in range(0, len(found), steps):
        epoch = [found[step] for step in range(first + 1, min(first + steps, len(found)) + 1)]
        samples = [sample for taken in epoch for sample in taken]
        assert len(set(samples)) == len(samples) == len(epoch) * batch
        # And they are those of a job that nothing ever interrupted.
        order = epoch_order(size, seed, first // steps, 0, len(samples))
        assert samples == order.tolist()


class Interrupted:
    """A job's sampler, loaders and checkpoints, without processes but for the data workers."""

    def __init__(self, seed: int, *, data_workers: int = 0) -> None:
        self.draw = random.Random(seed)
        self.seed = seed
        self.batch = 12 * self.draw.randint(1, 3)
        self.size = self.batch * self.draw.randint(1, 6) + self.draw.randrange(self.batch)
        self.step = 0
        self.found: Ledger = {}
        self.saved: list[tuple[int, dict[str, Any]]] = []
        task = object.__new__(CountedTask)  # reading asks a task for nothing but `collate`
        self.reader = Reader(task, Counted(self.size), seed)
        self.data_workers = Workers(data_workers, self.draw.randint(1, 3))

    def attempt(self) -> None:
        """Some steps on some number of ranks, from a checkpoint to an interruption."""
        world_size = self.draw.choice([1, 2, 3, 4, 6])
        rounds = self.draw.choice([1, 2]) if world_size < 6 else 1
        sampler = Sampler(self.size, self.batch, self.seed)
        self.step, state = self.saved[-1] if self.saved else (0, sampler.state())
        sampler.restore(state)
        for step in [step for step in self.found if step > self.step]:
            del self.found[step]
        samplers = [copy.copy(sampler) for _ in range(world_size)]
        loaders = [
            Loader(
                self.reader, each, Share(rank, world_size, rounds), self.data_workers, str
            )
            for rank, each in enumerate(samplers)
        ]  # fmt: skip
        every = self.draw.randint(1, 5)
        for _ in range(self.draw.randint(0, 12)):
            self.step += 1
            self.found[self.step] = [
                sample
                for loader in loaders
                for micro_batch in loader.step()
                for sample in micro_batch["id"].tolist()
            ]
            if self.step % every == 0:
                self.save(samplers[0])
        match self.draw.choice(["pause", "kill", "kill", "damaged"]):
            case "pause":
                self.save(samplers[-1])
            case "damaged" if len(self.saved) > 1:
                self.saved.pop()
        for loader in loaders:
            loader.close()

    def save(self, sampler: Sampler) -> None:
        state = json.loads(json.dumps(sampler.state()))
        self.saved = [kept for kept in self.saved if kept[0] < self.step]
        self.saved.append((self.step, state))


@pytest.mark.parametrize("seed", range(share_of(6)))
def test_interruptions_and_resizes_read_samples_once(seed: int) -> None:
    job = Interrupted(seed)
    for _ in range(50):
        job.attempt()
    assert len(job.found) > 2 * (job.size // job.batch)
    check(job.found, size=job.size, batch=job.batch, seed=seed)


@pytest.mark.processes
def test_data_workers_read_samples_once_when_interrupted() -> None:
    job = Interrupted(100, data_workers=1)
    for _ in range(6):
        job.attempt()
    assert len(job.found) > 10
    check(job.found, size=job.size, batch=job.batch, seed=100)


def test_ranks_read_samples_once_when_interrupted(ranks: RankServer, tmp_path: Path) -> None:
    draw = random.Random(4)
    size, batch, seed, rounds = 40, 12, 11, 2
    training = {
        "steps": 20 * (REAL_INTERRUPTIONS + 2), "global_batch_size": batch, "seed": seed,
        "data_workers": 1, "gradient_accumulation": rounds,
    }  # fmt: skip
    found: Ledger = {}
    ends = []
    for number in range(1, REAL_INTERRUPTIONS + 2):
        last = number > REAL_INTERRUPTIONS
        workers = draw.choice([1, 2, 3])
        params: dict[str, Any] = {"size": size}
        if not last:
            end = draw.choice(["kill", "kill", "pause"])
            params |= {"end": end, "at": draw.randint(1, 30), "by": draw.randrange(workers)}
        attempt = ranks.run(
            tmp_path,
            {
                "task": {"name": "support.tasks.counted:CountedTask", "params": params},
                "resources": {"workers": workers},
                "training": training,
                "checkpoint": {"every_steps": draw.randint(1, 6)},
            },
            attempt=number,
            resume=[checkpoint.path.name for checkpoint in scan(tmp_path / "checkpoints")],
        )
        ends.append(set(attempt.codes))
        resumed = attempt.event("started")["resumed_from"] or 0
        for step in [step for step in found if step > resumed]:
            del found[step]
        found |= taken(attempt, workers, rounds, resumed)
    assert ends[-1] == {0}
    assert any(-9 in codes for codes in ends)
    assert {83} in ends
    assert len(found) == training["steps"]
    check(found, size=size, batch=batch, seed=seed)


def counted(batch: int, **length: int) -> dict[str, Any]:
    return {
        "task": {"name": "support.tasks.counted:CountedTask", "params": {"size": 100}},
        "training": {"global_batch_size": batch, **length},
    }


def test_batch_size_change_finishes_the_epoch(ranks: RankServer, tmp_path: Path) -> None:
    ranks.run(tmp_path, counted(10, steps=5))
    names = [checkpoint.path.name for checkpoint in scan(tmp_path / "checkpoints")]
    attempt = ranks.run(tmp_path, counted(15, steps=9), attempt=2, resume=names)
    assert attempt.codes == [0], attempt.stderr()
    found = [sample for samples in taken(attempt, 1, 1, 5).values() for sample in samples]
    rest, following = (epoch_order(100, 0, epoch, 0, 100).tolist() for epoch in (0, 1))
    assert found == rest[50:95] + following[:15]


def test_epoch_based_run_refuses_batch_size_change(ranks: RankServer, tmp_path: Path) -> None:
    ranks.run(tmp_path, counted(10, epochs=1))
    names = [checkpoint.path.name for checkpoint in scan(tmp_path / "checkpoints")]
    second = ranks.run(tmp_path, counted(32, epochs=4), attempt=2, resume=names)
    assert second.codes == [1]
    failure = second.event("failure")
    assert failure["type"] == "SamplePositionError"
    assert failure["final"]
    assert "global_batch_size: 32" in failure["message"]
    assert "training.epochs" in failure["message"]


def taken(attempt: Attempt, workers: int, rounds: int, resumed: int) -> Ledger:
    """The steps of an attempt that all of its ranks have begun."""
    lines = [
        ledger(attempt.folder, rank).read_text().splitlines() for rank in range(workers)
    ]  # fmt: skip
    steps = min(len(of_rank) for of_rank in lines) // rounds
    return {
        resumed + step + 1: [
            sample
            for of_rank in lines
            for line in of_rank[step * rounds : (step + 1) * rounds]
            for sample in json.loads(line)
        ]
        for step in range(steps)
    }
