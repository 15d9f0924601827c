"""Passes that neither wait for values that are being chosen nor give many commands at once."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from threading import Event
from typing import Any
from unittest.mock import patch

import pytest
from support.cluster.simulated import SimulatedCluster
from support.database import on_sqlite
from support.experiments import RATE, SWEEP, read, trials
from support.storage.frames import frame, table

from trainhall.cluster.experiments import advance, tpe, views
from trainhall.cluster.experiments.spec import ExperimentSpec, validate_experiment
from trainhall.cluster.experiments.tpe import Past

TPE = {"method": "tpe", "space": {RATE: {"log": [0.0001, 1]}}, "trials": 4, "parallel": 2}


class Sampler:
    """A sampler that is as slow as a test wants, and keeps what it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_end = Event()
        self.may_end.set()
        self.results: list[list[tuple[float | None, ...]]] = []
        """Results of the trials so far, by suggestion."""
        self._suggest: Callable[[ExperimentSpec, Past], dict[str, Any]] = tpe.suggest
        monkeypatch.setattr(tpe, "suggest", self.suggest)

    def suggest(self, spec: ExperimentSpec, past: Past) -> dict[str, Any]:
        self.results.append([trial.results for trial in past.trials])
        assert self.may_end.wait(60)
        return self._suggest(spec, past)


@pytest.fixture
def sampler(monkeypatch: pytest.MonkeyPatch) -> Sampler:
    return Sampler(monkeypatch)


async def create(cluster: SimulatedCluster, **changes: Any) -> str:
    view, _ = await cluster.coordinator.experiments.create(
        validate_experiment({**SWEEP, **changes})
    )
    await cluster.settle()
    return view.id


@contextmanager
def slow(cluster: SimulatedCluster, sampler: Sampler) -> Iterator[None]:
    """Have no suggestion end, and no one wait for it."""
    reconciler = cluster.coordinator.reconciler
    sampler.may_end.clear()
    try:
        with patch.object(reconciler, "settle", reconciler._pass_repeatedly):
            yield
    finally:
        sampler.may_end.set()


async def complete(cluster: SimulatedCluster, run: views.Trial, accuracy: float) -> None:
    await cluster.run_until(str(run.job_id), "running")
    body = frame(1, table([100], eval_accuracy=[accuracy]))
    await cluster.coordinator.ingest.metrics(str(run.job_id), 1, "1-aaaaaaaa", body)
    await cluster.finish(str(run.job_id))


async def test_passes_continue_while_values_are_chosen(
    cluster: SimulatedCluster, sampler: Sampler
) -> None:
    await cluster.add_node("alpha", 4)
    with slow(cluster, sampler):
        experiment = await create(cluster, **TPE)
        assert await trials(cluster, experiment) == []
        other = await cluster.submit()
        await cluster.run_until(other, "running")
        assert await trials(cluster, experiment) == []
    await cluster.settle()
    assert [run.number for run in await trials(cluster, experiment)] == [1, 2]
    assert len(sampler.results) == 2


async def test_results_are_recorded_while_values_are_chosen(
    cluster: SimulatedCluster, sampler: Sampler
) -> None:
    """The values follow from the results at the time at which the place became free."""
    await cluster.add_node("alpha", 4)
    values, results = [], []
    for is_slow in (True, False):
        experiment = await create(cluster, **TPE)
        first, second = await trials(cluster, experiment)
        sampler.results.clear()
        with slow(cluster, sampler) if is_slow else nullcontext():
            await complete(cluster, first, 0.5)
            await complete(cluster, second, 0.7)
            ended = [run.objective for run in (await trials(cluster, experiment))[:2]]
            assert ended == [0.5, 0.7]
        await cluster.settle()
        listed = await trials(cluster, experiment)
        assert [run.number for run in listed] == [1, 2, 3, 4]
        values.append([run.values for run in listed])
        results.append([*sampler.results])
    # Lower is better to a sampler.
    assert results == [[[(-0.5,), ()], [(-0.5,), (-0.7,), ()]]] * 2
    assert values[0] == values[1]


async def test_pause_drops_values_that_are_being_chosen(
    cluster: SimulatedCluster, sampler: Sampler
) -> None:
    with slow(cluster, sampler):
        experiment = await create(cluster, **TPE)
        await cluster.coordinator.experiments.pause(experiment)
        await cluster.settle()
    await cluster.settle()
    assert await trials(cluster, experiment) == []
    await cluster.coordinator.experiments.resume(experiment)
    await cluster.settle()
    assert [run.number for run in await trials(cluster, experiment)] == [1, 2]


@pytest.mark.side_by_side
async def test_two_slow_coordinators_start_no_trial_twice(
    cluster: SimulatedCluster, sampler: Sampler
) -> None:
    first = cluster.coordinator
    with slow(cluster, sampler):
        experiment = await create(cluster, **TPE)
        cluster.start_coordinator()
        second = cluster.coordinator
        with slow(cluster, sampler):
            await cluster.settle()
    await asyncio.gather(first.reconciler.settle(), second.reconciler.settle())
    await second.reconciler.settle()
    assert [run.number for run in await trials(cluster, experiment)] == [1, 2]
    assert len((await second.jobs.list()).items) == 2
    await first.reconciler.stop()


@on_sqlite
async def test_pass_gives_few_commands_to_all_experiments(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advance, "COMMANDS_AT_ONCE", 4)
    experiments = [await create(cluster) for _ in range(2)]
    for experiment in experiments:
        await cluster.coordinator.experiments.pause(experiment)
    paused = []
    while await cluster.coordinator.reconciler.pass_once():
        counts = [(await read(cluster, experiment)).counts for experiment in experiments]
        paused.append(sum(each.get("paused", 0) for each in counts))
    assert paused == [4, 6]
