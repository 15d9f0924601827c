"""Names of writers: processes that number what they report of an attempt.

Coordinator and agents derive them from the launch: a node may use those of its own ranks alone.
"""

import zlib

from trainhall.training.link.frames import EVENT_FILES, TRACKING


def rank_writer(job_id: str, attempt: int, generation: int, rank: int) -> str:
    """Return the name of a rank's process, from the rank and the generation that it began with."""
    return f"{rank}-{_digest(job_id, attempt, generation, rank)}"


def tracking_writer(job_id: str, attempt: int, generation: int, rank: int) -> str:
    """Return the name under which a host reports what its tracking clients log, from the lowest
    rank and the generation with which the attempt began there."""
    return f"{TRACKING}{rank}-{_digest(job_id, attempt, generation, rank)}"


def event_file_writer(job_id: str, attempt: int, generation: int, rank: int) -> str:
    """Return the name under which a host reports what is in event files, likewise."""
    return f"{EVENT_FILES}{rank}-{_digest(job_id, attempt, generation, rank)}"


def recovery_writer(job_id: str, attempt: int, generation: int) -> str:
    """Return the name under which a host reports what rank 0 of an attempt did not."""
    return f"recovered-{_digest(job_id, attempt, generation)}"


def _digest(*parts: str | int) -> str:
    return f"{zlib.crc32('/'.join(map(str, parts)).encode()):08x}"
