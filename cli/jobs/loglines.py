"""Printing log lines, page by page."""

import contextlib
import json
import re
import sys
import time
from dataclasses import KW_ONLY, dataclass
from typing import Any

from trainhall.cli.base.client import Client
from trainhall.cli.base.errors import FINAL, UnreachableError
from trainhall.cli.base.output import harmless, label, notice
from trainhall.cli.jobs.follow import LAST_LINES_SECONDS, states

PAGE = 1000
POLL_SECONDS = 0.4


@dataclass
class LogPrinter:
    """Prints a job's lines once each, in the order in which the coordinator received them."""

    client: Client
    job_id: str
    _: KW_ONLY
    rank: int | None
    stream: str | None
    attempt: int | None
    prefixed: bool
    as_json: bool = False

    def __post_init__(self) -> None:
        self._cursor: str | None = None
        self._harmless = sys.stdout.isatty()
        self._attempt: int | None = None
        """Attempt of the last line."""

    def print_all(self, tail: int | None) -> None:
        """Print what there is, or the last `tail` lines of it."""
        first = self._page(tail)
        if tail is None and first:
            while self._page(None):
                pass

    def follow(self, tail: int | None) -> None:
        """Print what there is and what comes, until the job has ended; Ctrl-C ends it too."""
        quiet_since = time.monotonic()
        try:
            # Asked first: what a job wrote before it was final is on the next page.
            for job in states(self.client, self.job_id, POLL_SECONDS):
                found = 0
                # Without a coordinator `states` waits, or ends.
                with contextlib.suppress(UnreachableError):
                    while count := self._page(tail if self._cursor is None else None):
                        found += count
                if found or job["state"] not in FINAL:
                    quiet_since = time.monotonic()
                elif time.monotonic() - quiet_since >= LAST_LINES_SECONDS:
                    break
        except KeyboardInterrupt:
            return
        notice(f"{label(job)} is {job['state']}")

    def _page(self, tail: int | None) -> int:
        """Print the next page; how many lines it had."""
        page = self.client.get(
            f"/training/jobs/{self.job_id}/logs",
            after=self._cursor, tail=tail, limit=max(PAGE, tail or 0),
            rank=self.rank, stream=self.stream, attempt=self.attempt,
        )  # fmt: skip
        for line in page["items"]:
            self._print(line)
        sys.stdout.flush()
        self._cursor = page["next_cursor"] or self._cursor
        return len(page["items"])

    def _print(self, line: Any) -> None:
        if self.as_json:
            print(json.dumps(line, ensure_ascii=False))
            return
        if self._attempt not in (None, line["attempt"]):
            sys.stdout.flush()
            notice(f"-- attempt {line['attempt']} --")
        self._attempt = line["attempt"]
        text = harmless(line["text"]) if self._harmless else line["text"]
        prefix = ""
        if self.prefixed:
            # torch begins each line of an exception with the same.
            text = re.sub(rf"^\[rank{line['rank']}\]: ?", "", text)
            prefix = f"[{line['rank']}] "
        # A lone surrogate can't be written; anything else goes out as it came.
        out = f"{prefix}{text}\n".encode(errors="replace")
        sys.stdout.flush()
        sys.stdout.buffer.write(out)
