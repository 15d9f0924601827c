"""Reading a rank's files while they grow."""

from pathlib import Path

from trainhall.cli.local.metrics_file import MetricsFile
from trainhall.monitoring.codec import decode_frames
from trainhall.training.link.events import RankEvent
from trainhall.training.link.frames import complete_frames


class Tail:
    """The bytes of a file, each once; it need not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def pending(self) -> bytes:
        """Return the bytes that were not taken yet."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                return file.read()
        except FileNotFoundError:
            return b""

    def advance(self, count: int) -> None:
        self._offset += count


class EventTail(Tail):
    """A rank's events."""

    def read(self) -> list[RankEvent]:
        """Read the events since the last call; an unfinished line waits for the next."""
        data = self.pending()
        whole = data.rfind(b"\n") + 1
        self.advance(whole)
        return [RankEvent.model_validate_json(line) for line in data[:whole].splitlines()]


class MetricTail(Tail):
    """A rank's metric frames."""

    def feed(self, metrics: MetricsFile) -> None:
        """Hand the job-wide points since the last call to `metrics`."""
        data = self.pending()
        end = max((frame.end for frame in complete_frames(data)), default=0)
        self.advance(end)
        for table in decode_frames(data[:end]):
            if table.rank is None:
                columns = {name: values.tolist() for name, values in table.columns.items()}
                metrics.add(table.steps.tolist(), columns)
