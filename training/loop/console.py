"""The log of rank 0 of a built-in task: one line for people where something happens.

Nothing here is called within a step. Lines go straight to the file behind standard output, so none
is held back in a buffer, and an output that cannot be written to stops no training.
"""

import contextlib
import os
import time
from collections.abc import Mapping

PROGRESS_SECONDS = 10.0
"""Training between two lines of progress, at least."""
_STDOUT = 1


class Console:
    """Writes lines as rank 0, and nothing as any other rank."""

    def __init__(self, rank: int, total_steps: int) -> None:
        self._muted = rank != 0
        self._total = total_steps
        self._written_at = time.monotonic()

    def started(
        self, job: str, *, device: str, world_size: int, samples: int, parameters: int, step: int
    ) -> None:
        """Write that training starts, or resumes after `step`."""
        ranks = "1 rank" if world_size == 1 else f"{world_size} ranks"
        begun = f", resuming from step {step}" if step else ""
        self._write(
            f"{job} on {ranks} ({device}): {samples:,} samples, {parameters:,} parameters, "
            f"{self._total:,} steps{begun}"
        )

    def progress(self, step: int, metrics: Mapping[str, float]) -> None:
        """Print progress after a step sync; most of these calls write nothing."""
        now = time.monotonic()
        if now - self._written_at < PROGRESS_SECONDS:
            return
        self._written_at = now
        rate = f"  {metrics['samples_per_second']:,.0f} samples/s"
        self._write(self._line(step, {"loss": metrics["loss"]}) + rate)

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        self._write(self._line(step, metrics))

    def saved(self, step: int) -> None:
        self._write(f"step {step}/{self._total}  checkpoint saved")

    def ended(self, how: str, step: int) -> None:
        self._write(f"{how} at step {step}/{self._total}")

    def _line(self, step: int, metrics: Mapping[str, float]) -> str:
        shown = "".join(f"  {name} {value:.4g}" for name, value in metrics.items())
        return f"step {step}/{self._total}{shown}"

    def _write(self, line: str) -> None:
        if self._muted:
            return
        with contextlib.suppress(OSError):
            os.write(_STDOUT, f"{line}\n".encode())
