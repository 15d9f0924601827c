"""Comparing two reproducible runs by their chains: jobs of a coordinator, or folders of `run`."""

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from trainhall.cli.base.client import Client
from trainhall.cli.base.errors import CliError, UsageError
from trainhall.cli.base.output import label
from trainhall.cli.base.references import folder_meant, taken_for_id
from trainhall.training.hash_chain.chain import (
    LINK,
    SAMPLES,
    WEIGHTS,
    Chain,
    Comparison,
    Entry,
    as_text,
)
from trainhall.training.hash_chain.chain import compare as compare_chains

MAX_POINTS = 1_000_000
_NO_CHAIN = "has no hash chain; only runs with training.reproducible: true can be compared"


class FolderChain:
    """The chain of an output folder of `trainhall run`."""

    def __init__(self, folder: Path) -> None:
        """Read the chain; raise UsageError if the folder has none."""
        self._path = folder / "chain.jsonl"
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines()
            rows = [_row(number, line) for number, line in enumerate(lines, start=1)]
        except FileNotFoundError:
            raise UsageError(f"{folder} {_NO_CHAIN}") from None
        except (OSError, ValueError) as error:
            raise UsageError(f"{self._path} cannot be read: {error}") from None
        self._rows: dict[int, Any] = {row["step"]: row for row in rows}
        if not self._rows:
            raise UsageError(f"{folder} has no step yet")
        self.last = max(self._rows)

    def entry(self, step: int) -> Entry:
        try:
            row = self._rows[step]
            return Entry(row["link"], row["samples"], row["loss"], row["gradient_norm"])
        except KeyError:
            raise CliError(f"step {step} is not in {self._path}") from None

    def weights(self) -> Mapping[int, str]:
        return {step: row["weights"] for step, row in self._rows.items() if "weights" in row}


def _row(number: int, line: str) -> dict[str, Any]:
    row = json.loads(line)
    if not isinstance(row, dict) or not isinstance(row.get("step"), int):
        raise ValueError(f"line {number} is not a step of a hash chain")
    return row


class JobChain:
    """The chain of a job, of which steps are asked for as they are needed."""

    def __init__(self, client: Client, job: Any) -> None:
        """Open the chain; raise UsageError if the job has none."""
        self._client = client
        self._id, self._label = job["id"], label(job)
        if not (job["spec"] or {}).get("training", {}).get("reproducible"):
            raise UsageError(f"job {self._label} {_NO_CHAIN}")
        newest = self._series([LINK], max_points=1).get(LINK)
        if newest is None:
            raise UsageError(f"job {self._label} has no step yet")
        ((self.last, link),) = newest.items()
        self.newest = as_text(link)

    def entry(self, step: int) -> Entry:
        names = [LINK, SAMPLES, "loss", "gradient_norm"]
        series = self._series(names, from_step=step, to_step=step)
        try:
            link, samples, loss, norm = (series[name][step] for name in names)
        except KeyError:
            raise CliError(f"step {step} of job {self._label} is not recorded") from None
        return Entry(as_text(link), as_text(samples), loss, norm)

    def weights(self) -> Mapping[int, str]:
        saved = self._series([WEIGHTS], max_points=MAX_POINTS).get(WEIGHTS, {})
        return {step: as_text(number) for step, number in saved.items()}

    def _series(self, names: list[str], **span: int) -> dict[str, dict[int, Any]]:
        """Return job-wide values by name and step."""
        path = f"/metrics/jobs/{self._id}"
        found = self._client.get(path, names=",".join(names), **span)["series"]
        return {
            one["name"]: {point["step"]: point["value"] for point in one["points"]}
            for one in found
            if one["rank"] is None
        }


def compare(one: str, other: str, url: str) -> Comparison:
    """Compare two runs, each an output folder of `trainhall run` or a job.

    Raises:
        UsageError: one of them has no chain.
        CliError: the coordinator does not answer, or knows no such job.
    """
    with ExitStack() as stack:
        return compare_chains(*(_chain(each, url, stack) for each in (one, other)))


def newest_link(client: Client, job: Any) -> str | None:
    """Describe a job's newest link and its step; None if it keeps no chain."""
    try:
        chain = JobChain(client, job)
    except UsageError:
        return None
    return f"{chain.newest} at step {chain.last}"


def _chain(reference: str, url: str, stack: ExitStack) -> Chain:
    folder = folder_meant(reference, "an output folder of `trainhall run`, or a job's id")
    if folder is not None:
        return FolderChain(folder)
    client = stack.enter_context(Client(url))
    with taken_for_id(reference):
        job = client.job(reference)
    return JobChain(client, job)


def describe_result(result: Comparison) -> str:
    """Describe a comparison in words."""
    if result.step is None:
        return f"The runs are identical in all {result.compared} steps that both have."
    lines = [f"The runs diverge at step {result.step}:"]
    for name, (mine, theirs) in result.differs.items():
        what = "earlier steps (the link)" if name == "link" else name.replace("_", " ")
        lines.append(f"  {what}: {mine} and {theirs}")
    return "\n".join(lines)


def as_json(result: Comparison) -> dict[str, Any]:
    return {
        "same": result.step is None,
        "compared_steps": result.compared,
        "step": result.step,
        "differs": {name: list(values) for name, values in result.differs.items()},
    }
