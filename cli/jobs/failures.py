"""The last lines of a rank that failed."""

from typing import Any

from trainhall.cli.base.client import Client
from trainhall.cli.base.errors import CliError
from trainhall.cli.base.output import harmless, indented

SHOWN_LINES = 20


def last_words(client: Client, job: Any, *, seen_rank: int | None = None) -> str | None:
    """Return the end of the failed rank's stderr, and where to read more; None if nothing failed.

    What the rank wrote that was shown already is left out.
    """
    if job["state"] != "failed":
        return None
    hint = f"View all logs with `trainhall logs {job['id']}`."
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
    if not lines or (seen_rank is not None and failure["rank"] == seen_rank):
        return hint
    who = "the host" if failure["rank"] is None else f"rank {failure['rank']}"
    end = indented("\n".join(lines))
    return f"Last lines of {who} in attempt {attempt}\n{end}\n{hint}"
