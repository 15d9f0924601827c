"""Asynchronous successive halving, driven in any order of results."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhall.cluster.experiments.asha import (
    RungRun,
    RungTrial,
    Status,
    Stop,
    next_promotion,
    stops,
    trials_of,
)
from trainhall.cluster.lifecycle.states import TrialState


@dataclass
class Sweep:
    """Trials whose runs reach their next rung when `advance` picks them."""

    trials: int
    rungs: int
    factor: int
    parallel: int
    result: Callable[[int, int], float | None]
    """Of a trial at a rung, from 0."""
    fails: frozenset[int] = frozenset()
    """Trials that fail on their way to the second rung."""
    results: dict[int, list[float | None]] = field(default_factory=dict)
    status: dict[int, Status] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    completed: set[int] = field(default_factory=set)
    promotions: list[tuple[int, int]] = field(default_factory=list)
    """Trial and rung, from 0, that it was promoted from."""
    stopped: dict[int, Stop] = field(default_factory=dict)

    @property
    def rows(self) -> list[RungTrial]:
        return [
            RungTrial(number, status, tuple(self.results[number]))
            for number, status in self.status.items()
            if number not in self.failed
        ]

    @property
    def running(self) -> list[int]:
        ended = self.failed | self.completed
        return [n for n, s in self.status.items() if s is Status.RUNNING and n not in ended]

    def decide(self) -> None:
        undecided = self.trials - len(self.status)
        while len(self.running) < self.parallel:
            number = next_promotion(
                self.rows, rungs=self.rungs, factor=self.factor, undecided=undecided
            )
            if number is not None:
                self.promotions.append((number, len(self.results[number]) - 1))
                self.status[number] = Status.RUNNING
            elif undecided:
                undecided -= 1
                started = len(self.status) + 1
                self.status[started], self.results[started] = Status.RUNNING, []
            else:
                break
        found = stops(self.rows, rungs=self.rungs, factor=self.factor, undecided=undecided)
        for stop in found:
            assert self.status[stop.trial] is Status.WAITING
            self.status[stop.trial] = Status.STOPPED
            self.stopped[stop.trial] = stop

    def advance(self, chance: random.Random) -> None:
        number = chance.choice(self.running)
        if number in self.fails and len(self.results[number]) == 1:
            self.failed.add(number)
            return
        self.results[number].append(self.result(number, len(self.results[number])))
        if len(self.results[number]) == self.rungs:
            self.completed.add(number)
        else:
            self.status[number] = Status.WAITING

    def run(self, seed: int) -> "Sweep":
        chance = random.Random(seed)
        self.decide()
        while self.running:
            self.advance(chance)
            self.decide()
        return self


@st.composite
def sweeps(draw: st.DrawFn) -> Callable[[], Sweep]:
    trials = draw(st.integers(1, 30))
    rungs, factor = draw(st.integers(2, 4)), draw(st.integers(2, 4))
    parallel = draw(st.integers(1, 8))
    values = draw(
        st.lists(st.none() | st.integers(0, 9), min_size=trials * rungs, max_size=trials * rungs)
    )
    fails = draw(st.frozensets(st.integers(1, trials), max_size=2))

    def result(trial: int, rung: int) -> float | None:
        return values[(trial - 1) * rungs + rung]

    return lambda: Sweep(trials, rungs, factor, parallel, result, fails)


@given(make=sweeps(), seed=st.integers(0, 99))
def test_every_trial_ends_and_few_are_promoted(make: Callable[[], Sweep], seed: int) -> None:
    sweep = make().run(seed)
    assert len(sweep.status) == sweep.trials
    assert set(sweep.status) == set(sweep.stopped) | sweep.completed | sweep.failed
    assert len(set(sweep.promotions)) == len(sweep.promotions)
    for rung in range(sweep.rungs - 1):
        alive = [n for n in sweep.status if n not in sweep.failed]
        ranked = [r for n in alive if len(r := sweep.results[n]) > rung and r[rung] is not None]
        promoted = [n for n, at in sweep.promotions if at == rung and n not in sweep.failed]
        # A failure may come after the promotions that its result allowed.
        assert len(promoted) <= max(1, (len(ranked) + len(sweep.failed)) // sweep.factor)
        if ranked and not sweep.failed:
            assert promoted
    again = make().run(seed)
    assert (again.promotions, again.stopped) == (sweep.promotions, sweep.stopped)


@given(make=sweeps(), seed=st.integers(0, 99))
def test_promoted_trial_is_in_the_top_of_its_rung(make: Callable[[], Sweep], seed: int) -> None:
    sweep, chance = make(), random.Random(seed)
    while True:
        before = len(sweep.promotions)
        sweep.decide()
        for number, rung in sweep.promotions[before:]:
            ranked = sorted(
                (value, row.number)
                for row in sweep.rows
                if len(row.results) > rung and (value := row.results[rung]) is not None
            )
            top = [n for _, n in ranked[: max(1, len(ranked) // sweep.factor)]]
            others = {n for n, at in sweep.promotions if at == rung} | set(sweep.stopped)
            assert number in top or set(top) <= others
        if not sweep.running:
            return
        sweep.advance(chance)


@pytest.mark.parametrize("parallel", [1, 4, 27])
def test_27_trials_take_a_ninth_of_the_steps(parallel: int) -> None:
    sweep = Sweep(27, 4, 3, parallel, lambda trial, rung: float(trial)).run(0)
    at_each = [sum(at == rung for _, at in sweep.promotions) for rung in range(3)]
    assert at_each == [9, 3, 1]
    (best,) = sweep.completed
    assert best == 1 or parallel > 1
    assert len(sweep.stopped) == 26


def test_trials_without_a_promotion_are_stopped_with_their_rank() -> None:
    results = {1: 0.3, 2: 0.1, 3: 0.2}
    waiting = [RungTrial(n, Status.WAITING, (value,)) for n, value in results.items()]
    # A fourth trial may come, but no second place with it.
    assert stops(waiting, rungs=2, factor=3, undecided=1) == [
        Stop(3, True, 1, 3, places=1),
        Stop(1, True, 2, 3, places=1),
    ]
    assert stops(waiting, rungs=2, factor=3, undecided=3) == [Stop(1, True, 2, 3, places=2)]
    assert next_promotion(waiting, rungs=2, factor=3, undecided=1) == 2
    assert next_promotion(waiting[:2], rungs=2, factor=3, undecided=1) is None
    assert next_promotion(waiting[:2], rungs=2, factor=3) == 2
    without = [RungTrial(1, Status.WAITING, (None,))]
    assert stops(without, rungs=2, factor=3, undecided=9) == [Stop(1, False)]


def test_trial_waits_until_all_its_repeats_do() -> None:
    def trial(*runs: tuple[TrialState, tuple[float | None, ...]]) -> list[RungTrial]:
        listed = [RungRun((1, i), state, results) for i, (state, results) in enumerate(runs, 1)]
        return trials_of(listed, lower_is_better=False)

    waits, runs = TrialState.WAITING, TrialState.STARTED
    both, first = ((1, 1), (1, 2)), ((1, 1),)
    assert trial((waits, (0.5,)), (runs, ())) == [RungTrial(1, Status.RUNNING)]
    assert trial((waits, (0.5,)), (waits, (0.25,))) == [
        RungTrial(1, Status.WAITING, (-0.375,), both)
    ]
    # Of a promoted trial, the first run still waits.
    assert trial((waits, (0.5,)), (runs, (0.25,))) == [
        RungTrial(1, Status.RUNNING, (-0.375,), first)
    ]
    assert trial((waits, (0.5, 1)), (runs, (None,))) == [RungTrial(1, Status.RUNNING, (None,))]
    assert trial((waits, (0.5,)), (TrialState.FAILED, ())) == [
        RungTrial(1, Status.FAILED, waiting=first)
    ]
