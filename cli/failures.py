"""What the rank that failed wrote last, for whoever asks why a job failed."""

from typing import Any

from trainhall.cli.client import Client
from trainhall.cli.errors import CliError
from trainhall.cli.output import harmless, indented

SHOWN_LINES = 20


def last_words(client: Client, job: Any) -> str | None:
    """The end of the failed rank's stderr, and where to read more; None when nothing failed."""
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
    if not lines:
        return hint
    who = "its host" if failure["rank"] is None else f"rank {failure['rank']}"
    told = indented("\n".join(lines))
    return f"The last lines of {who} in attempt {attempt}\n{told}\n{hint}"
