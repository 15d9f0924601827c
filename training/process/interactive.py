"""Program of an interactive job's ranks: it holds a device until the job ends.

    python -m trainhall.training.process.interactive

What users start beside it has its environment and working folder.
"""

import os
import signal
import sys
from types import FrameType


def main() -> int:
    """Wait for SIGTERM, which pauses or ends the job."""
    signal.signal(signal.SIGTERM, _leave)
    job = os.environ.get("TRAINHALL_JOB_ID", "JOB")
    rank = os.environ.get("RANK", "0")
    sys.stdout.write(f"`trainhall exec {job} --rank {rank}` opens a shell here\n")
    sys.stdout.flush()
    while True:
        signal.pause()


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(0)


if __name__ == "__main__":
    sys.exit(main())
