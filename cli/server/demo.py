"""Demo of `make run`: one job from its submission to its validation accuracy."""

import threading
import time
from typing import Any

from trainhall.cli.base.client import Client
from trainhall.cli.base.errors import FINAL, CliError
from trainhall.cli.base.output import BLANK, main_metric, notice, state_and_reason
from trainhall.cli.jobs.follow import states
from trainhall.cli.jobs.progress import Progress
from trainhall.cli.spec import specs
from trainhall.cluster.durations import format_duration
from trainhall.cluster.tls import Anchor
from trainhall.training.spec import JobSpec

FAILED = 1
WATCH_SECONDS = 0.15
NODE_SECONDS = 20.0


class Demo:
    """Submits a job and follows it in a thread of its own, beside the watch over the processes."""

    def __init__(
        self,
        url: str,
        token: str,
        spec: JobSpec,
        stop: threading.Event,
        anchor: Anchor | None = None,
    ) -> None:
        self._spec = spec
        self._token = token
        self._url = url
        self._anchor = anchor
        self._stop = stop
        self._thread = threading.Thread(target=self._run, name="demo", daemon=True)
        self.exit_code = FAILED
        """0 once the job completed."""

    def start(self) -> None:
        self._thread.start()

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def join(self) -> None:
        self._thread.join(timeout=2)

    def _run(self) -> None:
        try:
            with Client(self._url, token=self._token, anchor=self._anchor) as client:
                self._await_node(client)
                job = specs.submit(self._spec, client)
                page = client.page_of(job["id"])
                notice(f"Submitted {job['name']}. Watch it at {page}")
                if text := place_in_queue(client, job):
                    notice(text)
                with Progress() as progress:
                    job = self._follow(client, job, progress)
        except CliError as error:
            notice(f"trainhall: {error}")
            return
        if job["state"] == "completed":
            self.exit_code = 0
        if job["state"] in FINAL:
            self._report(job)

    def _await_node(self, client: Client) -> None:
        """Wait for this host's agent: a job that waits for it would say that there are no nodes."""
        deadline = time.monotonic() + NODE_SECONDS
        while not self._stop.is_set() and time.monotonic() < deadline:
            if any(node["state"] == "ready" for node in client.items("/cluster/nodes")):
                return
            time.sleep(WATCH_SECONDS)

    def _follow(self, client: Client, job: Any, progress: Progress) -> Any:
        seen = job
        for seen in states(client, job["id"], WATCH_SECONDS):
            progress.show(seen)
            if self._stop.is_set() or seen["state"] in FINAL:
                break
        return seen

    def _report(self, job: Any) -> None:
        if job["state"] != "completed":
            notice(f"{job['name']} {state_and_reason(job['state'], job['reason'])}")
            notice(f"View its logs with `trainhall logs {job['id']} --url {self._url}`.")
            return
        from datetime import datetime

        seconds = (
            datetime.fromisoformat(job["finished_at"]) - datetime.fromisoformat(job["created_at"])
        ).total_seconds()
        text = f"{job['name']} completed: {job['step']} steps in {format_duration(seconds)}"
        metric = main_metric(job)
        notice(text if metric == BLANK else f"{text}, {metric}")


def place_in_queue(client: Client, job: Any) -> str | None:
    """Return a line with the number of jobs ahead of a waiting one; None without any."""
    entries = client.items("/cluster/queue")
    ahead = next((e["position"] - 1 for e in entries if e["job_id"] == job["id"]), 0)
    if not ahead:
        return None
    jobs = f"{ahead} jobs are" if ahead > 1 else "1 job is"
    return (
        f"It is number {ahead + 1} in the queue: {jobs} ahead of it. `trainhall ls --queue` "
        "lists them."
    )
