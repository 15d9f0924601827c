"""The metric that a job is compared by."""

from typing import Any

import pytest

from trainhall.cluster.jobs.main_metric import MainMetric, main_metric
from trainhall.training.spec.recovery import MetricMode


@pytest.mark.parametrize(
    ("metrics", "name"),
    [
        ({"loss": 0.5, "eval_loss": 0.6, "eval_accuracy": 0.9}, "eval_accuracy"),
        ({"loss": 0.5, "eval_bleu": 0.6, "eval_loss": 0.9}, "eval_loss"),
        ({"train/loss": 0.5, "lr": 0.1, "val/f1": 0.7}, "val/f1"),
        ({"aux_loss": 0.1, "loss": 0.5, "lr": 0.1}, "loss"),
        ({"lr": 0.1, "train/loss": 0.5, "value": 3}, "train/loss"),
        ({"LR": 0.1, "Train/Loss": 0.5}, "Train/Loss"),
        ({"Train/Loss": 0.5, "Val/Loss": 0.6, "Val/Accuracy": 0.9}, "Val/Accuracy"),
    ],
)
def test_validation_metric_comes_before_a_loss(metrics: dict[str, Any], name: str) -> None:
    found = main_metric({}, metrics)
    assert found is not None
    assert (found.name, found.value) == (name, metrics[name])


def test_main_metric_comes_from_spec_before_reports() -> None:
    spec = {"metric": {"name": "psnr", "goal": "max"}}
    assert main_metric(spec, {"loss": 0.5}) == MainMetric("psnr", None, MetricMode.MAX)
    assert main_metric(spec, {"psnr": "NaN"}) == MainMetric("psnr", "NaN", MetricMode.MAX)


def test_goal_follows_from_the_name() -> None:
    goals = [main_metric({}, {name: 1.0}) for name in ("Val/Loss", "eval_accuracy", "val/f1")]
    assert [found.goal for found in goals if found] == [MetricMode.MIN, MetricMode.MAX, None]


def test_job_without_such_metrics_has_none() -> None:
    assert main_metric({}, {"lr": 0.1}) is None
    assert main_metric({"metric": None}, {}) is None
