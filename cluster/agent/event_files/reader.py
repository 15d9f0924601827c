"""Reading a whole event file that nobody writes to any more."""

from collections.abc import Iterator
from pathlib import Path

from trainhall.cluster.agent.event_files.messages import Event, read_event
from trainhall.cluster.agent.event_files.records import OVERHEAD_BYTES, read_records

_PART_BYTES = 512 * 1024


class DamagedFileError(Exception):
    """An event file is damaged from a byte on."""

    def __init__(self, path: Path, offset: int) -> None:
        super().__init__(f"{path} is damaged at byte {offset:,}")


def read_file(path: Path) -> Iterator[Event]:
    """Yield the events of a file; what is cut short at its end is left out.

    Raises:
        DamagedFileError: after what is before the damage.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        offset = 0
        while True:
            file.seek(offset)
            records = read_records(file.read(_PART_BYTES))
            at = offset
            for record in records.data:
                try:
                    event = read_event(record)
                except ValueError:
                    raise DamagedFileError(path, at) from None
                yield event
                at += len(record) + OVERHEAD_BYTES
            if records.damaged_at is not None:
                raise DamagedFileError(path, offset + records.damaged_at)
            if not records.end and not records.passed_over:
                return
            offset += records.end + records.passed_over
