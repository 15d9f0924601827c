"""Following a job until it ends.

A terminal shows a progress bar with loss, other outputs a line now and then, and both the output of
rank 0 of a script.

The coordinator may be restarted meanwhile; the job continues without it, and so does this.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from trainhall.cli.base.client import Client
from trainhall.cli.base.errors import (
    CANCELLED,
    COMPLETED,
    FAILED,
    FINAL,
    MISSING,
    UNFINISHED,
    NotFoundError,
    UnreachableError,
)
from trainhall.cli.base.output import BLANK, harmless, label, main_metric, notice, one_line
from trainhall.cli.jobs.failures import last_words
from trainhall.cli.jobs.progress import Progress

_WORST_LAST = (COMPLETED, UNFINISHED, MISSING, CANCELLED, FAILED)
POLL_SECONDS = 0.5
WATCH_SECONDS = 0.25
LAST_LINES_SECONDS = 2.0
"""Time without a new line after which a job that has ended has written its last. The coordinator
holds back a line without a line break for a second."""
PAGE = 1000
"""Lines that are asked for at once."""
PATIENCE_SECONDS = 600.0
"""Time that a coordinator may be away before following it ends."""


def until_final(client: Client, job_id: str) -> int:
    """Show a job's progress until it has ended; return the exit code for its end.

    Ctrl-C leaves the job alone and returns 101.
    """
    try:
        with Progress() as progress:
            passed = _PassedStates(client, job_id, progress)
            written = _Written(client, job_id, progress)

            def show(job: Any) -> None:
                # A traceback comes before the restart that it explains.
                written.show(job)
                passed.show(job)

            job = watch(client, job_id, show, WATCH_SECONDS)
            written.show_last(job)
        # What rank 0 of a script wrote last stands above already.
        seen_rank = 0 if (job["spec"] or {}).get("script") else None
    except KeyboardInterrupt:
        notice(
            f"\nThe job was not cancelled. Follow it with `trainhall logs -f {job_id}`, cancel it "
            f"with `trainhall cancel {job_id}`."
        )
        return UNFINISHED
    except NotFoundError as error:
        notice(f"trainhall: {error.message}")
        return MISSING
    _print_end(client, job, seen_rank)
    return FINAL[job["state"]]


def wait_all(client: Client, references: Sequence[str], timeout: float | None) -> int:
    """Wait in silence until all jobs have ended or `timeout` seconds passed.

    Returns:
        The worst exit code: failed, cancelled, not found, unfinished, completed.
    """
    deadline = deadline_after(timeout)
    codes = []
    for reference in references:
        try:
            codes.append(wait(client, reference, deadline))
        except KeyboardInterrupt:
            codes.append(UNFINISHED)
            break
        except NotFoundError as error:
            notice(f"trainhall: {error}")
            codes.append(MISSING)
    return max(codes, key=_WORST_LAST.index)


def deadline_after(timeout: float | None) -> float:
    """Return when (monotonic) so many seconds will have passed; infinite without a timeout."""
    return math.inf if timeout is None else time.monotonic() + timeout


def wait(client: Client, reference: str, deadline: float = math.inf) -> int:
    """Wait in silence until a job has ended or the deadline (monotonic) has come.

    Raises:
        NotFoundError: there is no such job, or no longer.
    """
    job = ended(client, reference, deadline)
    if job["state"] not in FINAL:
        notice(f"{label(job)} is still {job['state']}")
        return UNFINISHED
    _print_end(client, job)
    return FINAL[job["state"]]


def ended(client: Client, reference: str, deadline: float) -> Any:
    """Return the job once it has ended, or as it was at the deadline (monotonic).

    Raises:
        UnreachableError: as `watch`.
    """
    job_id = client.job_id(reference, deadline)
    return watch(client, job_id, lambda _: None, POLL_SECONDS, deadline)


def watch(
    client: Client,
    job_id: str,
    show: Callable[[Any], None],
    every: float,
    deadline: float = math.inf,
) -> Any:
    """Read the job until it is final (or the time is up), and return what it was last.

    Raises:
        UnreachableError: the coordinator was away for too long, or until the time was up and
            nothing was read before.
    """
    job: Any = None
    for job in states(client, job_id, every, deadline):
        show(job)
        if job["state"] in FINAL:
            break
    return job


class _PassedStates:
    """Shows a job with every state that it was in, also those that ended between two polls."""

    def __init__(self, client: Client, job_id: str, progress: Progress) -> None:
        self._client = client
        self._job_id = job_id
        self._progress = progress
        self._seq = 0

    def show(self, job: Any) -> None:
        try:
            events = list(self._client.items(f"/training/jobs/{self._job_id}/events",
                                             after=self._seq))  # fmt: skip
        except UnreachableError:
            # The next poll shows what this one missed.
            events = []
        for event in events:
            self._seq = event["seq"]
            if event["kind"] == "state":
                self._progress.passed(event["data"]["state"], event["reason"])
        self._progress.show(job)


class _Written:
    """Shows the output of rank 0 of a script: often its only report."""

    def __init__(self, client: Client, job_id: str, progress: Progress) -> None:
        self._client = client
        self._path = f"/training/jobs/{job_id}/logs"
        self._progress = progress
        self._cursor: str | None = None
        self._more = f"(Output of rank 0; `trainhall logs -f {job_id}` shows every rank.)"

    def show(self, job: Any) -> int:
        """Show what was written since the last call; return how many lines that were."""
        if not (job["spec"] or {}).get("script") or not job["attempt"]:
            return 0
        shown = 0
        while count := self._page(job["world_size"]):
            shown += count
            if count < PAGE:
                break
        return shown

    def show_last(self, job: Any) -> None:
        """Show what still comes of a job that has just ended."""
        if not (job["spec"] or {}).get("script"):
            return
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < LAST_LINES_SECONDS:
            time.sleep(POLL_SECONDS)
            if self.show(job):
                quiet_since = time.monotonic()

    def _page(self, ranks: int) -> int:
        """Show the next page; return its number of lines."""
        try:
            page = self._client.get(self._path, after=self._cursor, rank=0, limit=PAGE)
        except UnreachableError:
            return 0
        if page["items"] and ranks > 1 and self._more:
            self._progress.line(self._more)
            self._more = ""
        for line in page["items"]:
            self._progress.line(harmless(line["text"]))
        self._cursor = page["next_cursor"] or self._cursor
        return len(page["items"])


def states(client: Client, job_id: str, every: float, deadline: float = math.inf) -> Iterator[Any]:
    """Yield the job at each poll until the deadline, and at least once.

    Raises:
        UnreachableError: as `watch`.
    """
    return readings(client, f"/training/jobs/{job_id}", every, deadline)


def readings(client: Client, path: str, every: float, deadline: float = math.inf) -> Iterator[Any]:
    """Yield what a path answers, as `states` does for a job.

    Raises:
        UnreachableError: as `watch`.
    """
    lost_at: float | None = None
    seen = False
    lost: UnreachableError | None = None
    while True:
        try:
            yield client.request("GET", path, deadline=deadline)
            seen = True
            if lost_at is not None:
                notice("The coordinator answers again.")
            lost_at = None
        except UnreachableError as error:
            lost = error
            if lost_at is None:
                notice("The coordinator does not answer; jobs keep running. Retrying.")
                lost_at = time.monotonic()
            if time.monotonic() - lost_at > PATIENCE_SECONDS:
                raise
        left = deadline - time.monotonic()
        if left <= 0:
            if lost is not None and not seen:
                raise lost
            return
        time.sleep(min(every, left))


def _print_end(client: Client, job: Any, seen_rank: int | None = None) -> None:
    notice(_final_line(job))
    if words := last_words(client, job, seen_rank=seen_rank):
        notice(words)


def _final_line(job: Any) -> str:
    text = f"{job['name']} {job['state']}"
    # A script shows no steps.
    if job["step"] or job["total_steps"]:
        text += f" at step {job['step']}"
    metric = main_metric(job)
    if job["state"] == "completed" and metric != BLANK:
        text += f", {metric}"
    if job["state"] != "completed" and job["reason"] not in ("", None, job["state"]):
        text += f": {one_line(job['reason'])}"
    return text
