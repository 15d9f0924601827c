"""Packed runs of points, and their rollups: a series is read in as many entries as a chart has.

Level 0 holds the points of a series. Level n, for n in `LEVELS`, holds one entry for each complete
group of 2**n points: the last point's step, time and value, and the smallest and largest value, so
that no spike is lost. Every level is cut into chunks of `CHUNK` entries; all but a level's last are
full. A group of 16 entries never straddles two chunks, so a level is always made from the open
chunk of the level below. NaN is kept as a point; a group's extremes leave it out unless it is all
there is.
"""

from dataclasses import dataclass, fields

from trainhall.arrays import Bools, Floats, Ints, np

CHUNK = 1024
STRIDE = 4
"""Each level's groups hold 2**STRIDE entries of the level below."""
LEVELS = (4, 8, 12, 16, 20)


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive entries, each array `[entries]`: points, or groups of points."""

    steps: Ints
    """Step of a group's last point, as are `times` (seconds) and `last`."""
    times: Floats
    last: Floats
    low: Floats
    high: Floats
    sizes: Ints
    """Number of points of each entry."""

    @classmethod
    def of_points(cls, steps: Ints, times: Floats, values: Floats) -> "Run":
        return cls(steps, times, values, values, values, np.ones(len(steps), np.int64))

    @classmethod
    def empty(cls) -> "Run":
        none = np.empty(0)
        return cls.of_points(np.empty(0, np.int64), none, none)

    def __len__(self) -> int:
        return len(self.steps)

    def at(self, keep: slice | Ints | Bools) -> "Run":
        """Return the entries at these positions."""
        return Run(*(getattr(self, column.name)[keep] for column in fields(self)))

    def ordered(self) -> bool:
        """Return whether every step is above the one before."""
        return bool((self.steps[1:] > self.steps[:-1]).all())

    def in_order(self) -> "Run":
        """Sort points by step; of several at one step, keep the one that came last."""
        if self.ordered():
            return self
        run = self.at(np.argsort(self.steps, kind="stable"))
        return run.at(np.append(run.steps[1:] != run.steps[:-1], True))

    def grouped(self, size: int) -> "Run":
        """Merge each `size` points, counted from the start; never split an entry."""
        if size <= 1 or not len(self):
            return self
        group = (np.cumsum(self.sizes) - self.sizes) // size
        starts = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
        ends = np.append(starts[1:], len(self)) - 1
        return Run(
            self.steps[ends],
            self.times[ends],
            self.last[ends],
            np.fmin.reduceat(self.low, starts),
            np.fmax.reduceat(self.high, starts),
            np.add.reduceat(self.sizes, starts),
        )

    def pack(self, level: int) -> bytes:
        """Pack columns of 8 bytes: steps, times, values; above level 0 also lows and highs."""
        columns = [self.times, self.last] + ([self.low, self.high] if level else [])
        return self.steps.astype("<i8").tobytes() + b"".join(
            column.astype("<f8").tobytes() for column in columns
        )

    @classmethod
    def unpack(cls, level: int, count: int, data: bytes) -> "Run":
        """Decode the result of `pack`, as views on `data`."""
        steps = np.frombuffer(data, "<i8", count)
        times, last, *extremes = (
            np.frombuffer(data, "<f8", count, 8 * count * column)
            for column in range(1, 5 if level else 3)
        )
        low, high = extremes or (last, last)
        return cls(steps, times, last, low, high, np.full(count, 1 << level, np.int64))


def joined(runs: list[Run]) -> Run:
    """Join runs in this order."""
    runs = [run for run in runs if len(run)]
    if not runs:
        return Run.empty()
    if len(runs) == 1:
        return runs[0]
    return Run(
        np.concatenate([run.steps for run in runs]),
        np.concatenate([run.times for run in runs]),
        np.concatenate([run.last for run in runs]),
        np.concatenate([run.low for run in runs]),
        np.concatenate([run.high for run in runs]),
        np.concatenate([run.sizes for run in runs]),
    )
