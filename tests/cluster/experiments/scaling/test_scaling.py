"""Scaling curves: laws, the model of a step, and what is left out of both."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from support.experiments import experiment

from trainhall.cluster.experiments.analysis.rows import RunRow
from trainhall.cluster.experiments.analysis.views import Analysis, ScalingCurve
from trainhall.cluster.experiments.runs import plan_configurations
from trainhall.cluster.experiments.scaling.analyze import analyze_scaling
from trainhall.cluster.experiments.scaling.costs import cost_of
from trainhall.cluster.experiments.scaling.fit import Terms, fit
from trainhall.cluster.experiments.scaling.worthwhile import SpeedPoint, Worthwhile, worthwhile
from trainhall.cluster.experiments.spec import validate_experiment
from trainhall.distributed.collectives.algorithms.registry import all_reduce
from trainhall.training.spec.parse import validate_spec

NOW = datetime(2026, 1, 2, tzinfo=UTC)
WORKERS, BATCH = "resources.workers", "training.global_batch_size"
Step = Callable[[int, int], tuple[float, float]]
"""Seconds of computing and of communicating, by workers and samples of a step."""
Change = Callable[[RunRow], RunRow]


def ring(workers: int, batch: int) -> tuple[float, float]:
    """A fixed part, a part by sample, and a ring with a latency of 1 ms for gradients of 40 ms."""
    rounds = 2 * (workers - 1)
    return 0.01 + 0.001 * batch / workers, 0.001 * rounds + 0.04 * rounds / workers


def analyzed(
    step: Step,
    *workers: int,
    repeats: int = 1,
    change: Change = lambda run: run,
    parallelism: dict[str, Any] | None = None,
    scaling: tuple[str, ...] = ("strong",),
) -> Analysis:
    """The analysis of a study whose repeats are each 1 % slower than the one before."""
    job = {
        "name": "speed", "task": {"name": "digits"}, "training": {"global_batch_size": 1024},
        "parallelism": parallelism or {},
    }  # fmt: skip
    spec = validate_experiment(
        {
            "name": "a",
            "kind": "scaling",
            "job": job,
            "space": {WORKERS: list(workers)},
            "scaling": list(scaling),
            "repeats": repeats,
        }
    )
    rows = []
    for planned in plan_configurations(spec):
        batch = planned.values.get(BATCH, 1024)
        compute, communication = step(planned.values[WORKERS], batch)
        share = communication / (compute + communication)
        for repeat in range(1, repeats + 1):
            seconds = (compute + communication) * (0.99 + repeat / 100)
            run = RunRow(
                planned.number, repeat, planned.values, "completed", objective=batch / seconds,
                figures={"step_seconds": seconds, "communication_share": share, "data_share": 0.0},
            )  # fmt: skip
            rows.append(change(run))
    return analyze_scaling(
        experiment(metric="samples_per_second", space=spec.space), spec.document(), rows, NOW
    )


def curve_of(analysis: Analysis) -> ScalingCurve:
    assert analysis.scaling is not None
    (curve,) = analysis.scaling
    return curve


def test_model_of_a_ring_is_found_and_predicts() -> None:
    analysis = analyzed(ring, 1, 2, 4, 8)
    curve = curve_of(analysis)
    assert curve.model is not None
    assert (curve.model.fitted_on, curve.model.validated_on) == ([1, 2, 4], 8)
    assert curve.model.error == pytest.approx(0, abs=1e-9)
    predicted = [point for point in curve.points if point.is_predicted]
    # A batch of 1,024 samples is shared by at most as many workers.
    assert [point.workers for point in predicted] == [16, 32, 64, 128, 256, 512, 1024]
    one = sum(ring(1, 1024))
    for point in predicted:
        compute, communication = ring(point.workers, 1024)
        assert point.speedup == pytest.approx(one / (compute + communication))
        assert point.communication_seconds == pytest.approx(communication)
        assert (point.trial, point.speedup_interval) == (None, None)
    text = " ".join(analysis.findings)
    assert "fitted on 1, 2 and 4 workers, predicts 0.0 %" in text
    assert "predicted, not measured: 256 workers have a speed-up of 1.713" in text


def test_predictions_have_intervals_over_the_repeats() -> None:
    def change(run: RunRow) -> RunRow:
        share = (run.figures["communication_share"] or 0.0) * (0.9 + run.repeat / 20)
        return replace(run, figures={**run.figures, "communication_share": share})

    curve = curve_of(analyzed(ring, 1, 2, 4, 8, repeats=3, change=change))
    for point in (point for point in curve.points if point.is_predicted):
        assert point.speedup_interval is not None
        low, high = point.speedup_interval
        assert low <= point.speedup <= high
        assert low < high
    # Of a repeat without its parts nothing is fitted.
    unmeasured = analyzed(
        ring, 1, 2, 4, repeats=2,
        change=lambda run: replace(run, figures={}) if run.repeat == 2 else run,
    )  # fmt: skip
    predicted = curve_of(unmeasured).points[-1]
    assert (predicted.is_predicted, predicted.speedup_interval) == (True, None)


def test_error_of_a_wrong_model_is_said() -> None:
    def congested(workers: int, batch: int) -> tuple[float, float]:
        compute, communication = ring(workers, batch)
        return compute, communication * (3 if workers == 4 else 1)

    analysis = analyzed(congested, 1, 2, 4)
    model = curve_of(analysis).model
    assert model is not None
    assert model.error > 0.3
    assert f"predicts {100 * model.error:.1f} % more speed at 4 than was measured" in " ".join(
        analysis.findings
    )


def test_ranks_that_share_cores_are_left_out() -> None:
    def change(run: RunRow) -> RunRow:
        return replace(run, shares_cores=run.values[WORKERS] > 4)

    def slow(workers: int, batch: int) -> tuple[float, float]:
        compute, communication = ring(workers, batch)
        return (compute * 9 if workers > 4 else compute), communication

    curve = curve_of(analyzed(slow, 1, 2, 4, 8, change=change))
    assert [p.workers for p in curve.points if p.shares_cores] == [8]
    assert curve.serial_share is not None
    assert curve.serial_share.fitted_on == [1, 2, 4]
    assert curve.model is not None
    assert curve.model.validated_on == 4
    # One number communicates in the fit: its latency counts as bandwidth.
    assert curve.model.error > 0
    assert next(p.workers for p in curve.points if p.is_predicted) == 8


def test_serial_share_is_that_of_each_law() -> None:
    def amdahl(workers: int, batch: int) -> tuple[float, float]:
        return 0.1 + 0.9 / workers, 0.0

    def gustafson(workers: int, batch: int) -> tuple[float, float]:
        return workers / (0.2 + 0.8 * workers), 0.0

    strong = curve_of(analyzed(amdahl, 1, 2, 4, repeats=3)).serial_share
    weak = curve_of(analyzed(gustafson, 2, 4, 8, scaling=("weak",))).serial_share
    assert strong is not None
    assert strong.share == pytest.approx(0.1)
    assert strong.interval is not None
    assert weak is not None
    assert weak.share == pytest.approx(0.2)
    assert weak.interval is None


def test_slowdown_has_no_serial_share() -> None:
    analysis = analyzed(lambda workers, _: (float(workers), 0.0), 1, 2, 4, repeats=3)
    text = " ".join(analysis.findings)
    assert "more workers are not faster, which Amdahl's law does not describe." in text
    assert "serial share" not in text


def test_speedups_are_relative_to_the_fewest_workers() -> None:
    curve = curve_of(analyzed(lambda workers, _: (1 / workers, 0.0), 2, 4, repeats=3))
    two, four = (point for point in curve.points if not point.is_predicted)
    assert (two.speedup, two.efficiency, two.speedup_interval) == (2, 1, None)
    assert four.speedup == pytest.approx(4)
    assert four.efficiency == pytest.approx(1)
    assert four.speedup_interval is not None
    assert four.speedup_interval[0] < 4 < four.speedup_interval[1]


@pytest.mark.parametrize(
    ("parallelism", "note"),
    [
        ({"strategy": "tensor"}, "data parallelism only"),
        ({"gradient_sync": {"algorithm": "hierarchical"}}, "depends on the hosts"),
    ],
)
def test_what_the_model_does_not_know_is_not_predicted(
    parallelism: dict[str, Any], note: str
) -> None:
    curve = curve_of(analyzed(ring, 1, 2, 4, parallelism=parallelism))
    assert note in curve.note
    assert curve.model is None
    assert not any(point.is_predicted for point in curve.points)


@pytest.mark.parametrize(
    "sync", [{"algorithm": "tree"}, {"algorithm": "naive"}, {"compression": "topk"}]
)
def test_cost_follows_the_algorithm(sync: dict[str, Any]) -> None:
    curve = curve_of(analyzed(ring, 1, 2, 4, parallelism={"gradient_sync": sync}))
    assert curve.points[-1].communication_seconds != pytest.approx(ring(1024, 1024)[1])


@pytest.mark.parametrize("ranks", [1, 2, 7])
def test_cost_of_naive_is_that_of_its_schedule(ranks: int) -> None:
    document = {
        "name": "speed",
        "task": {"name": "digits"},
        "parallelism": {"gradient_sync": {"algorithm": "naive"}},
    }
    legs = list(all_reduce("naive", ranks).legs())
    rounds, volume = sum(leg.times for leg in legs), sum(leg.times * leg.share for leg in legs)
    assert cost_of(validate_spec(document))(ranks) == (rounds, volume)


def test_too_few_points_are_not_fitted() -> None:
    def failed(run: RunRow) -> RunRow:
        return replace(run, state="failed", objective=None) if run.values[WORKERS] > 1 else run

    analysis = analyzed(ring, 1, 2, change=failed)
    curve = curve_of(analysis)
    assert curve.note == "a speed-up takes two measured numbers of workers"
    assert (curve.serial_share, curve.worthwhile, curve.model) == (None, None, None)
    assert (
        "Strong scaling: nothing is fitted or predicted; a speed-up takes" in analysis.findings[0]
    )
    assert "it takes 3 numbers of workers" in curve_of(analyzed(ring, 1, 2)).note
    for figures in ({}, {"step_seconds": 0.0, "communication_share": 0.0}):
        unmeasured = analyzed(ring, 1, 2, 4, change=partial(replace, figures=figures))
        assert curve_of(unmeasured).note == "the time that steps communicate was not measured"


def test_more_workers_pay_until_efficiency_or_gain_is_low() -> None:
    def points(*speeds: float) -> list[SpeedPoint]:
        workers = [2**i for i in range(len(speeds))]
        return [SpeedPoint(n, v, v / n, n > 4) for n, v in zip(workers, speeds, strict=True)]

    assert worthwhile(points(1, 1.9, 3.6, 3.7)) == Worthwhile(4, True, "at 8 efficiency is 46 %")
    assert worthwhile(points(1, 1.05, 1)) == Worthwhile(
        1, False, "at 2 twice as many workers are 5 % faster"
    )
    assert worthwhile(points(1, 1.9, 3.6, 7)) == Worthwhile(8, True)
    assert worthwhile(points(1)) is None


def test_fit_has_no_negative_terms() -> None:
    assert fit([(1, 2), (1, 4)], [5, 9], [5, 9]) == pytest.approx(Terms(1, 2))
    assert fit([(1, 1), (1, 2)], [3, 1], [1, 1]).second == 0
    assert fit([(0, 0), (2, 1)], [0, 6], [1, 6]) == Terms(0, 6)
    assert fit([(0, 0)], [0], [1]) == Terms(0, 0)
