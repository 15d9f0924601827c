"""Reading all points of a few job-wide series of an attempt, for sums over them."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, and_, select

from trainhall.arrays import Floats, Ints, np
from trainhall.db.models import MetricChunk, MetricFrame, Series
from trainhall.monitoring.chunks import Run
from trainhall.monitoring.codec import decode_frames


@dataclass(frozen=True, slots=True)
class Points:
    """Points of a series, in the order in which they came."""

    steps: Ints
    times: Floats
    """Seconds since the epoch."""
    values: Floats

    @classmethod
    def empty(cls) -> "Points":
        """Return no points."""
        return cls(np.empty(0, np.int64), np.empty(0), np.empty(0))


def read_points(
    connection: Connection, job_id: str, attempt: int, names: Sequence[str]
) -> dict[tuple[str, bool], Points]:
    """Return points by name and whether they are superseded; a series without any is left out."""
    found: dict[tuple[str, bool], list[Points]] = defaultdict(list)
    packed = (
        select(Series.name, Series.superseded, MetricChunk.count.label("entries"), MetricChunk.data)
        .join(MetricChunk, and_(MetricChunk.series_id == Series.id, MetricChunk.level == 0))
        .where(
            Series.job_id == job_id,
            Series.attempt == attempt,
            Series.rank == -1,
            Series.name.in_(names),
        )
        .order_by(Series.id, MetricChunk.index)
    )
    for name, superseded, entries, data in connection.execute(packed):
        run = Run.unpack(0, entries, data)
        found[name, superseded].append(Points(run.steps, run.times, run.last))
    raw = (
        select(MetricFrame.superseded, MetricFrame.payload)
        .where(
            MetricFrame.job_id == job_id,
            MetricFrame.attempt == attempt,
            MetricFrame.packed.is_(False),
        )
        .order_by(MetricFrame.seq)
    )
    for superseded, payload in connection.execute(raw):
        for table in decode_frames(payload):
            for name in names if table.rank is None else ():
                if (values := table.columns.get(name)) is not None and len(values):
                    found[name, superseded].append(Points(table.steps, table.times, values))
    return {key: _joined(parts) for key, parts in found.items()}


def _joined(parts: Sequence[Points]) -> Points:
    return Points(
        np.concatenate([part.steps for part in parts]),
        np.concatenate([part.times for part in parts]),
        np.concatenate([part.values for part in parts]),
    )
