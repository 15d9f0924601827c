"""Forecasts of compressions on known links."""

import pytest
import torch

from trainhall.distributed.collectives.cost import Link, LinkClass
from trainhall.distributed.compression.forecast import (
    NAMES,
    SAMPLE,
    Forecast,
    Gradients,
    forecast,
)

SHAPES = [(512, 256, 3, 3), (512,), (1000, 512)]
SLOW, FAST = Link(50e-6, 12.5e6), Link(1e-6, 100e9)


def forecast_of(name: str, link: Link, ranks: int = 2, bucket_bytes: float = 1e9) -> Forecast:
    gradients = Gradients(SHAPES, torch.float32, bucket_bytes, torch.device("cpu"))
    return forecast(name, 0.01, gradients, [range(ranks)], {LinkClass.HOST: link})


def test_forecast_without_compression_matches_the_ring() -> None:
    size = 4 * (512 * 256 * 9 + 512 + 1000 * 512)
    assert forecast_of("none", SLOW).seconds == pytest.approx(2 * 50e-6 + size / 12.5e6)
    assert forecast_of("fp16", SLOW).sending_seconds == pytest.approx(2 * 50e-6 + size / 2 / 12.5e6)
    eight = forecast_of("none", SLOW, bucket_bytes=size / 8)
    assert eight.seconds == pytest.approx(16 * 50e-6 + size / 12.5e6)


def test_forecast_recommends_topk_on_slow_networks_only() -> None:
    for name in ("topk", "powersgd"):
        # What it computes by itself is measured, and would be long on a busy machine.
        assert forecast_of(name, SLOW).sending_seconds < forecast_of("none", SLOW).seconds / 5
        assert forecast_of(name, FAST).seconds > forecast_of("none", FAST).seconds


def test_pairs_are_gathered_so_more_ranks_cost_more() -> None:
    two, eight = (forecast_of("topk", SLOW, ranks).sending_seconds for ranks in (2, 8))
    assert eight > 6 * two


def test_links_between_hosts_count_where_there_are_some() -> None:
    gradients = Gradients(SHAPES, torch.float32, 1e9, torch.device("cpu"))
    within, links = [[0, 1]], {LinkClass.HOST: FAST, LinkClass.RACK: SLOW}
    assert forecast("none", 1, gradients, within, links) != forecast_of("none", SLOW)
    between = forecast("none", 1, gradients, [[0], [1]], links)
    assert between.seconds == pytest.approx(forecast_of("none", SLOW).seconds)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "shapes",
    [
        [(1,)],
        [()],
        [(1 << 21,)],
        [(3, 1 << 20)],
        [(0, 4)],
        [(SAMPLE,), ()],
        [(SAMPLE - 1,), (), ()],
    ],
)
def test_forecast_accepts_any_model(name: str, shapes: list[tuple[int, ...]]) -> None:
    gradients = Gradients(shapes, torch.float64, 1e6, torch.device("cpu"))
    answer = forecast(name, 0.01, gradients, [[0, 1], [2]], {LinkClass.RACK: SLOW})
    assert answer.seconds >= 0


def test_forecast_samples_a_large_model() -> None:
    huge = Gradients([(1 << 40,)], torch.float32, 25e6, torch.device("cpu"))
    forecast("topk", 0.01, huge, [[0, 1]], {LinkClass.HOST: SLOW})


def test_forecast_leaves_random_state_alone() -> None:
    state = torch.get_rng_state()
    forecast_of("powersgd", SLOW)
    assert torch.equal(torch.get_rng_state(), state)
