"""Metric series as the API shows them."""

from trainhall.api.schemas.base import MetricValue, Schema, Time


class Point(Schema):
    """A point, or a bucket of several: then `step`, `time` and `value` are its last point's."""

    step: int
    """Finished optimizer steps; the first is 1."""
    time: Time
    value: MetricValue
    """NaN and infinities are texts."""
    min: MetricValue
    """Smallest value of the bucket."""
    max: MetricValue
    """Largest value of the bucket."""


class SeriesOut(Schema):
    """One named metric of one rank, or of the job."""

    name: str
    rank: int | None
    """Null for the job as a whole."""
    points: list[Point]


class Metrics(Schema):
    """Series of a job."""

    series: list[SeriesOut]
