"""Texts about an experiment."""

import sys

from trainhall.cli.experiments.summary import trial_means


def test_mean_needs_every_repeat_and_never_overflows() -> None:
    largest = sys.float_info.max
    runs = [
        {"number": number, "objective": objective}
        for number, objective in [(1, 0.25), (1, 0.75), (2, 0.5), (2, None), (3, largest)] * 2
    ]
    assert trial_means(runs) == {1: 0.5, 3: largest}
