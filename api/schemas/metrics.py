"""Metric series as the API shows them."""

from trainhall.db.views import MetricValue, Time, View


class Point(View):
    """A point, or a bucket of several: then `step`, `time` and `value` are its last point's."""

    step: int
    """Finished optimizer steps; the first is 1."""
    time: Time
    value: MetricValue
    """NaN and infinities are strings."""
    min: MetricValue
    """Smallest value of the bucket."""
    max: MetricValue
    """Largest value of the bucket."""


class SeriesOut(View):
    """One named metric of one rank, or of the job."""

    name: str
    rank: int | None
    """Null for the job as a whole."""
    points: list[Point]


class Metrics(View):
    """Series of a job."""

    series: list[SeriesOut]
