"""A coordinator driven from Python: by a notebook, or whatever runs at night.

    import trainhall as th

    with th.Client() as hall:
        job = hall.submit("examples/digits.yaml", {"training.learning_rate": 0.01})
        job = hall.wait(job["id"])

Jobs, checkpoints and the rest are dicts, with the keys of the REST API (docs/rest-api.md). Where a
call fails, one of the exceptions here says why; `CliError` is the base of all of them.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Self

from trainhall.cli.base.client import Client as RestClient
from trainhall.cli.base.config import DEFAULT_URL
from trainhall.cli.base.errors import (
    FINAL,
    CliError,
    NotAllowedError,
    NotFoundError,
    UnreachableError,
    UsageError,
    WrongStateError,
)
from trainhall.cli.base.output import label
from trainhall.cli.experiments import document
from trainhall.cli.experiments.follow import has_stopped
from trainhall.cli.jobs import follow
from trainhall.cli.outputs import download
from trainhall.cli.spec import specs

__all__ = [
    "CliError",
    "Client",
    "NotAllowedError",
    "NotFoundError",
    "UnreachableError",
    "UsageError",
    "WrongStateError",
]

Json = dict[str, Any]

_LINES = 1000
"""Lines of output per request."""
_MOST_POINTS = 1_000_000


class Client:
    """Talks to one coordinator; close it, or use it in a `with`.

    Any unique prefix of the id of a job, a checkpoint or an experiment works.

    Args:
        url: of the coordinator; None: `TRAINHALL_URL`, or this host's at port 8000.
        token: API token; None: `TRAINHALL_TOKEN`, or the one that `trainhall login` stored.

    Raises:
        UnreachableError: any call, if no coordinator answers after a few tries.
        NotFoundError: any call about a job or checkpoint that is not there.
        NotAllowedError, CliError: the coordinator refuses, or fails.
    """

    def __init__(self, url: str | None = None, *, token: str | None = None) -> None:
        address = url or os.environ.get("TRAINHALL_URL") or DEFAULT_URL
        self._rest = RestClient(address, token=token)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._rest.close()

    def request(self, method: str, path: str, *, json: Any = None, **params: Any) -> Any:
        """Send any other request of the REST API, by its path below `/api/v1`; return its JSON."""
        given = {key: value for key, value in params.items() if value is not None}
        return self._rest.request(method, path, json=json, params=given)

    # -- jobs ------------------------------------------------------------------------------------

    def submit(
        self, spec: str | Path | Mapping[str, Any], changes: Mapping[str, Any] | None = None
    ) -> Json:
        """Submit a job, once, however often the connection breaks; its code is sent along.

        Args:
            spec: a file in YAML or JSON, or what would be in it; then relative paths are taken from
                the present folder.
            changes: values to replace, by their fields: `{"training.steps": 20}`.

        Raises:
            UsageError: it is no valid job spec; the message names every wrong field.
        """
        job: Json = specs.submit(_read(spec, changes), self._rest)
        return job

    def check(
        self, spec: str | Path | Mapping[str, Any], changes: Mapping[str, Any] | None = None
    ) -> Json:
        """Return the job that `submit` would create, and when it would start (`outlook`)."""
        found: Json
        found, _ = specs.check(_read(spec, changes), self._rest)
        return found

    def job(self, job_id: str) -> Json:
        found: Json = self._rest.job(job_id)
        return found

    def jobs(
        self,
        *,
        state: str | Sequence[str] | None = None,
        search: str | None = None,
        limit: int | None = None,
        query: str | None = None,
        sort: str | None = None,
    ) -> Iterator[Json]:
        """Yield the jobs, the newest first.

        Args:
            state: one, or several of which any will do.
            search: part of the name, or beginning of the id.
            query: terms that all must match, such as `state:failed lr>0.01` (docs/rest-api.md);
                `user:me` means you.
            sort: key to sort by, such as `name` or `-metrics.eval_accuracy`.
        """
        asked = {"state": state, "search": search, "query": query, "sort": sort}
        return self._rest.items("/training/jobs", limit=limit, **asked)

    def views(self) -> Iterator[Json]:
        """Yield the saved views of the list of jobs: `name`, `query`, `sort`, `columns`…"""
        return self._rest.items("/views")

    def wait(self, job_id: str, timeout: float | None = None) -> Json:
        """Wait until the job is `completed`, `failed` or `cancelled`, and return it.

        The coordinator may be restarted meanwhile.

        Args:
            timeout: seconds; None: as long as it takes.

        Raises:
            TimeoutError: it has not ended by then, as far as is known, and runs on.
        """
        deadline = follow.deadline_after(timeout)
        with _timing_out(deadline, f"job {job_id}"):
            job: Json = follow.ended(self._rest, job_id, deadline)
        if job["state"] not in FINAL:
            raise TimeoutError(f"job {label(job)} is still {job['state']} after {timeout:g} s")
        return job

    def pause(self, job_id: str) -> Json:
        """Pause a job: its ranks save and exit at a step that they agree on."""
        return self._command("PUT", job_id, "/pause")

    def resume(
        self,
        job_id: str,
        *,
        resources: Mapping[str, Any] | None = None,
        parallelism: Mapping[str, Any] | None = None,
    ) -> Json:
        """Resume a paused job.

        Args:
            resources, parallelism: keys of these parts of its spec to replace.
        """
        return self._command("PUT", job_id, "/resume", _changes(resources, parallelism))

    def resize(self, job_id: str, **workers: int) -> Json:
        """Give a job another number of workers.

        Args:
            workers: `workers`, or `min_workers` and `max_workers`.
        """
        return self._command("PUT", job_id, "/resize", workers)

    def cancel(self, job_id: str) -> Json:
        return self._command("DELETE", job_id, "")

    def tag(self, job_id: str, *add: str, remove: Sequence[str] = ()) -> Json:
        """Add tags to a job and remove others, in any state.

        Raises:
            UsageError: it is no tag, or the job would have too many.
        """
        return self._command("PATCH", job_id, "", {"add_tags": add, "remove_tags": remove})

    def note(self, job_id: str, notes: str) -> Json:
        """Replace the notes of a job; they are Markdown, and empty ones remove them."""
        return self._command("PATCH", job_id, "", {"notes": notes})

    def archive(self, job_id: str) -> Json:
        """Hide an ended job from lists whose query lacks `archived:yes`; everything is kept."""
        return self._command("PATCH", job_id, "", {"archived": True})

    def unarchive(self, job_id: str) -> Json:
        return self._command("PATCH", job_id, "", {"archived": False})

    def delete(self, job_id: str) -> None:
        """Delete an ended job for good, with its metrics, logs and checkpoints.

        Raises:
            WrongStateError: it has not ended, or an experiment still needs it.
        """
        self._command("DELETE", job_id, "/record")

    def _command(self, method: str, job_id: str, action: str, body: Any = None) -> Json:
        path = f"/training/jobs/{self._rest.job_id(job_id)}{action}"
        job: Json = self._rest.request(method, path, json=body or None)
        return job

    # -- experiments -----------------------------------------------------------------------------

    def create_experiment(self, experiment: str | Path | Mapping[str, Any]) -> Json:
        """Create an experiment; the code of its job is sent along.

        Args:
            experiment: a file in YAML or JSON, or what would be in it; then relative paths are
                taken from the present folder.

        Raises:
            UsageError: it is no valid experiment; the message names every wrong field.
        """
        if isinstance(experiment, Mapping):
            given = document.Given(dict(experiment), Path.cwd())
        else:
            given = document.load(str(experiment))
        created: Json = document.create(document.check(given), self._rest)
        return created

    def experiment(self, experiment_id: str) -> Json:
        found: Json = self._rest.experiment(experiment_id)
        return found

    def experiments(
        self, *, limit: int | None = None, user: str | None = None, project: str | None = None
    ) -> Iterator[Json]:
        """Yield the experiments, the newest first.

        Args:
            user: only those of this user; `me` is you.
            project: only those of this project.
        """
        return self._rest.items("/experiments", limit=limit, user=user, project=project)

    def trials(self, experiment_id: str) -> Iterator[Json]:
        """Yield the runs of an experiment: `values`, `objective`, `job_id`, `state`…"""
        return self._rest.items(f"/experiments/{self.experiment(experiment_id)['id']}/trials")

    def analyze_experiment(self, experiment_id: str) -> Json:
        """Return what its runs show so far: `findings`, `best`, `comparisons`, `importance`…"""
        found: Json = self._rest.analyze_experiment(self.experiment(experiment_id)["id"])
        return found

    def experiment_report(
        self, experiment_id: str, form: Literal["html", "md", "json", "csv"] = "md"
    ) -> str:
        """Return a report of an experiment as text; `html` is one file that loads nothing."""
        return self._rest.experiment_report(self.experiment(experiment_id)["id"], form)

    def wait_for_experiment(self, experiment_id: str, timeout: float | None = None) -> Json:
        """Wait until all runs of an experiment have ended, and return it; paused, if it has paused
        by itself as its first result does not have the metric of the objective.

        The coordinator may be restarted meanwhile.

        Args:
            timeout: seconds; None: as long as it takes.

        Raises:
            TimeoutError: they have not ended by then, as far as is known.
        """
        deadline = follow.deadline_after(timeout)
        found: Json = {}
        with _timing_out(deadline, f"experiment {experiment_id}"):
            path = f"/experiments/{self._rest.experiment(experiment_id, deadline)['id']}"
            for found in follow.readings(self._rest, path, follow.POLL_SECONDS, deadline):
                if has_stopped(found):
                    return found
        raise TimeoutError(
            f"experiment {label(found)} is still {found['state']} after {timeout:g} s"
        )

    def pause_experiment(self, experiment_id: str) -> Json:
        """Pause its jobs, and start no further trial."""
        return self._command_experiment("PUT", experiment_id, "/pause")

    def resume_experiment(self, experiment_id: str) -> Json:
        """Resume it, and the jobs that were paused with it."""
        return self._command_experiment("PUT", experiment_id, "/resume")

    def cancel_experiment(self, experiment_id: str) -> Json:
        """Cancel its jobs, and start no further trial."""
        return self._command_experiment("DELETE", experiment_id, "")

    def _command_experiment(self, method: str, experiment_id: str, action: str) -> Json:
        path = f"/experiments/{self.experiment(experiment_id)['id']}{action}"
        done: Json = self._rest.request(method, path)
        return done

    # -- reports ---------------------------------------------------------------------------------

    def reports(self, *, user: str | None = None, project: str | None = None) -> Iterator[Json]:
        """Yield the reports that users wrote, the newest first, without their texts.

        Args:
            user: only those of this user; `me` is you.
            project: only those of this project.
        """
        return self._rest.items("/reports", user=user, project=project)

    def report(self, report_id: str) -> Json:
        """Return a report by its title or id; its `text` is Markdown."""
        found: Json = self._rest.report(report_id)
        return found

    def create_report(self, title: str, text: str) -> Json:
        """Create a report; its page is `/reports/ID` of the dashboard."""
        made: Json = self._rest.request("POST", "/reports", json={"title": title, "text": text})
        return made

    def change_report(self, report: Mapping[str, Any], **changes: str) -> Json:
        """Change the `title` or `text` of a report that was read before.

        Raises:
            WrongStateError: somebody changed it since.
        """
        body = {"version": report["version"], **changes}
        changed: Json = self._rest.request("PATCH", f"/reports/{report['id']}", json=body)
        return changed

    def delete_report(self, report_id: str) -> None:
        self._rest.request("DELETE", f"/reports/{self.report(report_id)['id']}")

    # -- results ---------------------------------------------------------------------------------

    def metrics(self, job_id: str) -> list[str]:
        """Return the names of the metrics that a job has so far."""
        return sorted(self.job(job_id)["metrics"])

    def curve(self, job_id: str, name: str, rank: int | None = None) -> list[tuple[int, float]]:
        """Return the steps and values of a metric; empty as long as it has none (`metrics` names
        those that do).

        Args:
            rank: of one rank; None: of the whole job.
        """
        path = f"/metrics/jobs/{self._rest.job_id(job_id)}"
        found = self._rest.get(path, names=name, max_points=_MOST_POINTS)["series"]
        points: list[Json] = next((s["points"] for s in found if s["rank"] == rank), [])
        return [(point["step"], float(point["value"])) for point in points]

    def packages(self, job_id: str, attempt: int | None = None) -> Json:
        """Return what rank 0 ran with: `host`, `python`, `os`, `cuda`, `driver`, and `packages`
        (versions by name).

        Args:
            attempt: number of the attempt; None: the newest that has reported it.
        """
        path = f"/training/jobs/{self._rest.job_id(job_id)}/packages"
        found: Json = self._rest.get(path, attempt=attempt)
        return found

    def compare_code(self, job_id: str, other: str) -> Json:
        """Return how the code of two jobs differs: `identical`, and `items` with `path`, `change`
        and `diff` (None for binary and large files)."""
        path = f"/training/jobs/{self._rest.job_id(job_id)}/code/diff"
        found: Json = self._rest.get(path, other=self._rest.job_id(other))
        return found

    def provenance(self, job_id: str) -> Json:
        """Return where a job comes from: `git` (`commit`, `branch`, `remote`, `dirty`, `diff`) and
        the `command` that submitted it; each is None if it is not known."""
        found: Json = self._rest.get(f"/training/jobs/{self._rest.job_id(job_id)}/provenance")
        return found

    def lines(
        self,
        job_id: str,
        *,
        rank: int | None = None,
        stream: str | None = None,
        attempt: int | None = None,
    ) -> Iterator[Json]:
        """Yield the lines of a job's output so far: `text`, `rank`, `stream`, `time`…"""
        path, cursor = f"/training/jobs/{self._rest.job_id(job_id)}/logs", None
        while True:
            page = self._rest.get(
                path, after=cursor, limit=_LINES, rank=rank, stream=stream, attempt=attempt
            )
            if not page["items"]:
                return
            yield from page["items"]
            cursor = page["next_cursor"]

    def events(self, job_id: str) -> Iterator[Json]:
        """Yield the events of a job, oldest first."""
        return self._rest.items(f"/training/jobs/{self._rest.job_id(job_id)}/events")

    def checkpoints(self, job_id: str) -> Iterator[Json]:
        """Yield the checkpoints of a job, newest first."""
        return self._rest.items(f"/checkpoints/jobs/{self._rest.job_id(job_id)}")

    def outputs(
        self, job_id: str, rank: int | None = None, find: str | None = None
    ) -> Iterator[Json]:
        """Yield the files that a job has written: `path`, `size`, `sha256`, `modified_at`…

        Args:
            rank: only those of the host whose lowest rank this is; None: of all hosts.
            find: only those whose paths have all these words, in any order and case.
        """
        return download.outputs_of(self._rest, self._rest.job_id(job_id), rank, find)

    def read_output(self, job_id: str, path: str, rank: int | None = None) -> bytes:
        """Return the content of one of a job's files, verified.

        Raises:
            NotFoundError: the job has no such file.
        """
        files = (file for file in self.outputs(job_id, rank) if file["path"] == path)
        file = next(iter(download.chosen(files, [path])))
        return b"".join(download.read(self._rest, self._rest.job_id(job_id), file, rank))

    def get_outputs(
        self,
        job_id: str,
        folder: str | Path,
        paths: Sequence[str] = (),
        rank: int | None = None,
    ) -> list[Path]:
        """Download files of a job, verified, into a folder; return where they are.

        Files that are there already are not fetched again.

        Args:
            paths: paths, folders or patterns such as `*.png`; none: all files.

        Raises:
            NotFoundError: a path means no file.
            CliError: a file would lie outside the folder, or cannot be written.
        """
        whole = self._rest.job_id(job_id)
        files = download.chosen(download.outputs_of(self._rest, whole, rank), paths)
        for file in files:
            download.fetch(self._rest, whole, file, Path(folder), rank)
        return [download.place_of(Path(folder), file["path"]) for file in files]

    def restore(
        self,
        checkpoint_id: str,
        *,
        resources: Mapping[str, Any] | None = None,
        parallelism: Mapping[str, Any] | None = None,
    ) -> Json:
        """Queue a checkpoint's job again, to start from there.

        Args:
            resources, parallelism: keys of these parts of its spec to replace.

        Raises:
            WrongStateError: the job runs, or the checkpoint is no good.
        """
        path = f"/checkpoints/{self._rest.checkpoint(checkpoint_id)['id']}/restore"
        job: Json = self._rest.request("POST", path, json=_changes(resources, parallelism))
        return job

    # -- the cluster -----------------------------------------------------------------------------

    def nodes(self) -> Iterator[Json]:
        return self._rest.items("/cluster/nodes")

    def queue(self) -> Iterator[Json]:
        """Yield the jobs that wait, the next one first, each with what it waits for."""
        return self._rest.items("/cluster/queue")

    def queue_history(self, job_id: str) -> list[Json]:
        """Return the positions that a job had in the queue, the oldest first."""
        path = f"/training/jobs/{self._rest.job(job_id)['id']}/queue-history"
        positions: list[Json] = self._rest.get(path)["items"]
        return positions

    def ledger(
        self,
        by: Literal["job", "user", "project"] = "user",
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Iterator[Json]:
        """Yield device-hours, energy and money by job, user or project.

        Args:
            since: with a zone; None: 30 days before `until`.
            until: with a zone; None: now.
        """
        begin, end = (time and time.isoformat() for time in (since, until))
        return self._rest.items("/ledger", by=by, since=begin, until=end)

    # -- alerts ----------------------------------------------------------------------------------

    def alerts(self) -> Iterator[Json]:
        return self._rest.items("/alerts")

    def alert(self, alert_id: str) -> Json:
        """Return an alert by its name or id."""
        found: Json = self._rest.alert(alert_id)
        return found

    def add_alert(
        self, name: str, on: Sequence[str], target: Mapping[str, str], **more: Any
    ) -> Json:
        """Add an alert; the `secret` of a webhook is returned only now.

        Args:
            on: conditions, such as `job.failed`.
            target: its `kind` (webhook, slack, mail or browser) and `url`.
            more: `scope`, `waiting_seconds`, `disk_percent`.
        """
        body = {"name": name, "on": list(on), "target": dict(target), **more}
        made: Json = self._rest.request("POST", "/alerts", json=body)
        return made

    def change_alert(self, alert_id: str, **changes: Any) -> Json:
        """Change parts of an alert, such as `on`, `target` or `enabled`."""
        path = f"/alerts/{self.alert(alert_id)['id']}"
        changed: Json = self._rest.request("PATCH", path, json=changes)
        return changed

    def remove_alert(self, alert_id: str) -> None:
        self._rest.request("DELETE", f"/alerts/{self.alert(alert_id)['id']}")

    def test_alert(self, alert_id: str) -> Json:
        """Send a test message, and return it; `deliveries` shows what became of it."""
        sent: Json = self._rest.request("POST", f"/alerts/{self.alert(alert_id)['id']}/test")
        return sent

    def deliveries(self, alert_id: str) -> Iterator[Json]:
        """Yield the messages of an alert, the newest first."""
        return self._rest.items(f"/alerts/{self.alert(alert_id)['id']}/deliveries")


@contextmanager
def _timing_out(deadline: float, what: str) -> Iterator[None]:
    """Raise TimeoutError where the coordinator did not answer by the deadline (monotonic)."""
    try:
        yield
    except UnreachableError as error:
        if time.monotonic() < deadline:
            raise
        raise TimeoutError(f"the coordinator did not answer about {what}: {error}") from error


def _read(spec: str | Path | Mapping[str, Any], changes: Mapping[str, Any] | None) -> Any:
    overrides = {field: json.dumps(value) for field, value in (changes or {}).items()}
    if isinstance(spec, Mapping):
        return specs.of_document(spec, overrides)
    return specs.load(str(spec), overrides)


def _changes(
    resources: Mapping[str, Any] | None, parallelism: Mapping[str, Any] | None
) -> dict[str, Mapping[str, Any]]:
    asked = {"resources": resources, "parallelism": parallelism}
    return {part: values for part, values in asked.items() if values}
