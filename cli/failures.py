"""What the rank that failed wrote last, for whoever asks why a job failed."""

import re
from typing import Any

from trainhall.cli.client import Client
from trainhall.cli.errors import CliError
from trainhall.cli.output import harmless, indented

SHOWN_LINES = 20
_RANK = re.compile(r"^\[rank\d+\]: ?")
"""What torch puts before each line of an exception."""


def last_words(client: Client, job: Any, *, seen_rank: int | None = None) -> str | None:
    """The end of the failed rank's stderr, and where to read more; None when nothing failed.

    What the job's reason says is not said again, nor what the rank wrote that was shown already.
    """
    if job["state"] != "failed":
        return None
    hint = f"Read more with `trainhall logs {job['id']}`."
    try:
        attempts = list(client.items(f"/training/jobs/{job['id']}/attempts"))
    except CliError:
        # That the job failed, and why, is known without it.
        return hint
    failures = [(a["attempt"], a["failure"]) for a in attempts if a["failure"]]
    if not failures:
        return hint
    attempt, failure = max(failures, key=lambda pair: pair[0])
    lines = [harmless(line) for line in failure["log_tail"].rstrip().splitlines()[-SHOWN_LINES:]]
    lines = _without_told(lines, job["reason"])
    if not lines or (seen_rank is not None and failure["rank"] == seen_rank):
        return hint
    who = "its host" if failure["rank"] is None else f"rank {failure['rank']}"
    told = indented("\n".join(lines))
    return f"The last lines of {who} in attempt {attempt}\n{told}\n{hint}"


def _without_told(lines: list[str], reason: str) -> list[str]:
    """The lines without those at their end that the reason has told: a traceback's exception."""
    told = " ".join(reason.split()) + ";"
    for first in range(len(lines)):
        words = " ".join(word for line in lines[first:] for word in _RANK.sub("", line).split())
        if not words or f": {words};" in told:
            return lines[:first]
    return lines
