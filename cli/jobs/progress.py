"""The progress of a job on stderr: one bar on a terminal, a line every few seconds elsewhere."""

import math
import sys
import time
from typing import Any, Self

from trainhall.cli.base.errors import FINAL
from trainhall.cli.base.output import colored, notice, number, state_and_reason
from trainhall.cluster.durations import format_duration

LINE_SECONDS = 5.0


class Progress:
    """Shows `{name, state, reason, step, total_steps, metrics}` as it changes."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._printed: tuple[str, str] | None = None
        self._line_at = 0.0
        self._line_step = 0
        self._started: tuple[float, int] | None = None
        """When `_ranks` were last seen at their first step, and that step."""
        self._ranks: tuple[int, int] | None = None
        """Attempt and generation."""
        self._passed: str | None = None
        """Last state that `passed` reported; a job that was read before it is older."""
        self._waits_for: str | None = None
        self._wait_at = -math.inf

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=None),
                TextColumn("{task.fields[steps]}", markup=False),
                TextColumn("{task.fields[measured]}", markup=False),
                console=Console(stderr=True, no_color=not colored(sys.stderr), highlight=False),
                refresh_per_second=8,
            )
            self._bar.start()
            self._task = self._bar.add_task("", total=None, steps="", measured="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, job: Any) -> None:
        """Show a job as the REST API reads it (fewer keys serve too)."""
        step, total = job["step"], job["total_steps"]
        measured = self._describe_metrics(job, step, total)
        state = (job["state"], job["reason"] or "")
        steps = f"{step}/{total}" if total else str(step)
        if self._bar is not None:
            # The bar itself says that a job runs.
            if self._is_new(state) and job["state"] != "running":
                self._print_state(*state)
            self._bar.update(
                self._task,
                description=f"{job['name']} {job['state']}",
                completed=step,
                total=total,
                steps=steps,
                measured=measured,
            )
        else:
            now = time.monotonic()
            # The caller reports how it ended.
            if self._is_new(state):
                self._print_state(*state)
            # A job that restarts still has the step that was printed before.
            if (
                step
                and step != self._line_step
                and (now - self._line_at >= LINE_SECONDS or step == total)
            ):
                if self._line_at != float("inf"):
                    notice(f"step {steps}  {measured}")
                    self._line_step = step
                self._line_at = float("inf") if step == total else now
        self._printed = state

    def passed(self, state: str, reason: str) -> None:
        """Print a state that the job was in, perhaps too shortly for `show` to see it."""
        self._passed = state
        if state not in FINAL:
            self._print_state(state, reason)

    def line(self, text: str) -> None:
        """Print a line above the bar."""
        if self._bar is not None:
            from rich.text import Text

            self._bar.console.print(Text.from_ansi(text), soft_wrap=True)
        else:
            notice(text)

    def _is_new(self, state: tuple[str, str]) -> bool:
        if self._passed is None:
            return state != self._printed and state[0] not in FINAL
        # What a job waits for changes while its state does not.
        if state[0] != "queued" or self._passed != "queued" or state[1] == self._waits_for:
            return False
        now = time.monotonic()
        if now - self._wait_at < LINE_SECONDS:
            return False
        self._wait_at = now
        return True

    def _print_state(self, state: str, reason: str) -> None:
        self._waits_for = reason
        self.line(state_and_reason(state, reason))

    def _describe_metrics(self, job: Any, step: int, total: int | None) -> str:
        metrics = job["metrics"]
        parts = []
        if (loss := metrics.get("loss")) is not None:
            parts.append(f"loss {number(loss)}")
        main = job["main_metric"]
        if main is not None and main["name"] != "loss" and main["value"] is not None:
            parts.append(f"{main['name']} {number(main['value'])}")
        if (rate := metrics.get("samples_per_second")) is not None:
            parts.append(f"{number(rate)} samples/s")
        left = self._seconds_left(job, step, total)
        if left is not None:
            parts.append(f"{format_duration(left)} left")
        return "  ".join(parts)

    def _seconds_left(self, job: Any, step: int, total: int | None) -> float | None:
        """Estimate from the pace since the first step seen, without start-up and waiting."""
        now = time.monotonic()
        ranks = None
        if job["state"] == "running":
            ranks = job.get("attempt", 0), job.get("generation", 0)
        if self._started is None or ranks != self._ranks or step <= self._started[1]:
            self._started, self._ranks = (now, step), ranks
            return None
        since, first = self._started
        return (now - since) / (step - first) * (total - step) if total and step < total else None
