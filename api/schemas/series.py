"""Series as JSON, without a model for each point: a history may have a million of them."""

import asyncio
from collections.abc import Sequence
from typing import Any

import orjson

from trainhall.arrays import Floats, np
from trainhall.db.sanitize import number_or_text
from trainhall.monitoring.metrics import SeriesData

_LAST_SECOND = 253_402_300_799.0
"""The end of the year 9999, the last one that RFC 3339 can write."""


async def encode_series(series: Sequence[SeriesData]) -> bytes:
    """Encode `{"series": […]}` as `trainhall.api.schemas.metrics.Metrics` describes it.

    In a thread: a million points leave the event loop to others meanwhile.
    """
    return await asyncio.to_thread(lambda: orjson.dumps({"series": [*map(_one, series)]}))


def _one(series: SeriesData) -> dict[str, Any]:
    run = series.run
    seconds = np.clip(np.nan_to_num(run.times), 0.0, _LAST_SECOND)
    timestamps = np.rint(seconds * 1e6).astype("int64").astype("datetime64[us]")
    times = np.datetime_as_string(timestamps, unit="us", timezone="UTC").tolist()
    last = _numbers(run.last)
    low = last if run.low is run.last else _numbers(run.low)
    high = last if run.high is run.last else _numbers(run.high)
    points = [
        {"step": step, "time": time, "value": value, "min": smallest, "max": largest}
        for step, time, value, smallest, largest in zip(
            run.steps.tolist(), times, last, low, high, strict=True
        )
    ]
    return {"name": series.name, "rank": series.rank, "points": points}


def _numbers(values: Floats) -> list[float | str]:
    numbers: list[float] = values.tolist()
    return [*numbers] if np.isfinite(values).all() else [number_or_text(n) for n in numbers]
