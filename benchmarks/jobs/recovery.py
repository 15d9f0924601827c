"""Time from the death of one of two ranks to the next optimizer step, against `torchrun`.

    python -m benchmarks.jobs.recovery [--rounds 7] [--recoveries 200] [--commands 5]

Both run the same job on two CPU ranks and save every 500 steps; rank 0 and rank 1 take turns in
being ended by SIGKILL. Trainhall's job runs as it would all day, under `trainhall server` and
`trainhall agent`; `torchrun` runs the job written by hand with --max-restarts. A recovery is over
when the first step after it is. Where `torchrun` hangs, which happens on Gloo, it is counted and
started anew.

`--recoveries` has Trainhall recover so often in a row. The job is also paused and resumed: from the
request until its processes are gone and the checkpoint is committed, and until the next step.
"""

import argparse
import contextlib
import itertools
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.jobs.cluster import cluster, wait_for
from benchmarks.report import Figure, report

PEER = Path(__file__).with_name("torchrun_recovery.py")
SAVE_STEPS = 500
HUNG_SECONDS = 60.0
GOAL_RATIO = 5.0
GOAL_PAUSE_SECONDS = 1.0
GOAL_RESUME_SECONDS = 1.0
SPEC = {
    "name": "recovery",
    "task": {"name": "digits", "params": {"hidden": [64]}},
    "resources": {"workers": 2, "device": "cpu"},
    "training": {"steps": 10_000_000, "global_batch_size": 64, "optimizer": "adamw"},
    "checkpoint": {"every_steps": SAVE_STEPS},
    "recovery": {"max_restarts": 1000},
}
PARTS = {
    "detect": "until the coordinator heard of it",
    "regroup": "until devices were granted, or the ranks that are left were told",
    "load": "until all ranks had met and had their state",
    "step": "until the first step",
}
"""As they are told of an incident."""
PAUSE_PARTS = (
    "of a pause until the ranks had saved",
    "until the attempt was over, its checkpoint being on the coordinator",
    "until its processes were seen to be gone",
)
RESUME_PARTS = (
    "of a resume until devices were granted",
    "until all ranks had met and had their state",
    "until the first step",
)


@dataclass
class Recovery:
    seconds: float
    redone: int
    """Steps that were done before and were done again."""
    parts: tuple[float | None, ...] = ()
    """Seconds, by `PARTS`."""
    in_place: bool = False


@dataclass
class Command:
    """A pause or a resume."""

    seconds: float
    parts: tuple[float | None, ...]
    """Seconds, by `PAUSE_PARTS` or `RESUME_PARTS`."""


class Job:
    """Trainhall's job, by what its coordinator tells and what its processes are."""

    def __init__(self, api: httpx.Client) -> None:
        self._api = api
        reply = api.post("/training/jobs", json=SPEC).raise_for_status()
        self.id = str(reply.json()["id"])
        self._events_read = 0
        self.wait_for_step(2 * SAVE_STEPS)

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self._api.get(f"/training/jobs/{self.id}").raise_for_status().json()
        return found

    def wait_for_step(self, step: int) -> None:
        def check() -> bool | None:
            job = self.state()
            if job["state"] in ("failed", "cancelled", "completed"):
                raise SystemExit(f"the job is {job['state']}: {job['reason']}")
            return True if job["step"] >= step else None

        wait_for(f"step {step}", check, every=0.1)

    def steps(self, begin: int) -> list[tuple[int, float]]:
        """(step, seconds since the epoch) from a step on."""
        query: dict[str, Any] = {"names": "loss", "from_step": begin, "max_points": 1_000_000}
        reply = self._api.get(f"/metrics/jobs/{self.id}", params=query).raise_for_status().json()
        return [
            (point["step"], seconds_of(point["time"]))
            for series in reply["series"]
            if series["rank"] is None
            for point in series["points"]
        ]

    def recover(self, rank: int) -> Recovery:
        before = self.state()
        token = before["attempt"], before["generation"]
        killed = time.time()
        rank_processes(self.id)[rank].kill()

        # Those who live tell steps of before the fault late: an event says when all step again.
        incident = wait_for("the next step", lambda: self._incident(*token), every=0.1)
        self.wait_for_step(self.state()["step"] + SAVE_STEPS)
        first = next_step(self.steps(max(1, before["step"] - 2 * SAVE_STEPS)), killed)
        parts = tuple(incident[f"{part}_seconds"] for part in PARTS)
        in_place = self.state()["attempt"] == token[0]
        return Recovery(first[1] - killed, incident["steps_redone"] or 0, parts, in_place)

    def _incident(self, number: int, generation: int) -> dict[str, Any] | None:
        """What is told of the end of a generation, once the next one has taken a step."""
        query = {"limit": 500}
        reply = self._api.get(f"/training/jobs/{self.id}/attempts", params=query)
        incidents: list[dict[str, Any]] = [
            incident
            for attempt in reply.raise_for_status().json()["items"]
            if attempt["attempt"] == number
            for incident in attempt["timeline"]
            if incident["generation"] == generation and incident["stepped_at"] is not None
        ]
        return incidents[-1] if incidents else None

    def _news(self) -> list[dict[str, Any]]:
        """Events since the last call."""
        found: list[dict[str, Any]] = []
        while True:
            query = {"after": self._events_read, "limit": 500}
            reply = self._api.get(f"/training/jobs/{self.id}/events", params=query)
            items = reply.raise_for_status().json()["items"]
            if not items:
                return found
            self._events_read = items[-1]["seq"]
            found += items

    def pause(self) -> Command:
        """Until the checkpoint is committed and every process is gone."""
        ranks = rank_processes(self.id)
        self._news()
        began = time.time()
        self._api.put(f"/training/jobs/{self.id}/pause").raise_for_status()

        def is_over() -> bool | None:
            over = self.state()["state"] == "paused"
            return True if over and not any(rank.is_running() for rank in ranks) else None

        wait_for("the pause", is_over, every=0.01)
        over = time.time()
        changes = self._news()
        saved = time_of(changes, lambda event: event["reason"].startswith("stopped at step"))
        ended = time_of(changes, lambda event: event["data"].get("state") == "paused")
        return Command(over - began, differences(began, saved, ended, over))

    def resume(self) -> Command:
        """Until the next step is done."""
        step = self.state()["step"]
        self._news()
        began = time.time()
        self._api.put(f"/training/jobs/{self.id}/resume").raise_for_status()
        self.wait_for_step(step + SAVE_STEPS)
        stepped = self.steps(step + 1)[0][1]
        changes = self._news()
        granted = time_of(changes, lambda event: event["data"].get("state") == "starting")
        loaded = time_of(changes, lambda event: "resumed_from" in event["data"])
        return Command(stepped - began, differences(began, granted, loaded, stepped))


class Torchrun:
    """The same job by hand, under `torchrun`; it is started anew when it hangs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.hung = 0
        self._starts = 0
        self._start()

    def _start(self) -> None:
        self._starts += 1
        self._place = self._folder / str(self._starts)
        self._place.mkdir(parents=True)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        with (self._place / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2",
                    "--max-restarts=1000", f"--master-port={port}", str(PEER),
                    str(self._place), str(SAVE_STEPS),
                ],
                stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )  # fmt: skip
        self._restart = 0
        wait_for("torchrun's steps", lambda: True if len(self._steps(0)) > 2 * SAVE_STEPS else None)

    def _steps(self, restart: int) -> list[tuple[int, float]]:
        path = self._place / "steps"
        if not path.exists():
            return []
        rows = [line.split() for line in path.read_text().splitlines()]
        return [(int(row[1]), float(row[2])) for row in rows if row[0] == str(restart)]

    def recover(self, rank: int) -> Recovery | None:
        """None where it hung."""
        pid = int((self._place / f"pid-{self._restart}-{rank}").read_text())
        before = self._steps(self._restart)[-1][0]
        killed = time.time()
        os.kill(pid, signal.SIGKILL)
        self._restart += 1
        while time.time() - killed < HUNG_SECONDS:
            steps = self._steps(self._restart)
            if len(steps) > SAVE_STEPS:
                return Recovery(steps[0][1] - killed, max(0, before - steps[0][0] + 1))
            time.sleep(0.1)
        self.hung += 1
        self.stop()
        self._start()
        return None

    def stop(self) -> None:
        """Its ranks lead sessions of their own."""
        children = psutil.Process(self._process.pid).children(recursive=True)
        for process in [*children, psutil.Process(self._process.pid)]:
            with contextlib.suppress(psutil.Error):
                process.kill()
        self._process.wait()


@contextlib.contextmanager
def torchrun(folder: Path) -> Iterator[Torchrun]:
    peer = Torchrun(folder)
    try:
        yield peer
    finally:
        peer.stop()


def rank_processes(job: str) -> list[psutil.Process]:
    """Of a job, in the order of their ranks."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            environ = process.environ()
            if environ.get("TRAINHALL_JOB_ID") == job and "RANK" in environ:
                found.append((int(environ["RANK"]), process))
    return [process for _, process in sorted(found, key=lambda pair: pair[0])]


def next_step(steps: list[tuple[int, float]], killed: float) -> tuple[int, float]:
    """The first step after the longest break that ended after the kill.

    A step whose gradients were exchanged already may still be finished by the rank that is left.
    """
    by_time = sorted(steps, key=lambda step: step[1])
    pairs = [
        (after[1] - before[1], after)
        for before, after in itertools.pairwise(by_time)
        if after[1] > killed
    ]
    return max(pairs)[1]


def time_of(events: list[dict[str, Any]], is_it: Callable[[dict[str, Any]], bool]) -> float | None:
    """Of the first such event, seconds since the epoch."""
    return next((seconds_of(event["time"]) for event in events if is_it(event)), None)


def differences(*times: float | None) -> tuple[float | None, ...]:
    return tuple(
        None if before is None or after is None else after - before
        for before, after in itertools.pairwise(times)
    )


def seconds_of(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--recoveries", type=int, default=20, help="in a row, of Trainhall alone")
    parser.add_argument("--commands", type=int, default=5, help="pauses and resumes")
    options = parser.parse_args()
    ours: list[Recovery] = []
    peers: list[Recovery] = []
    with (
        tempfile.TemporaryDirectory(prefix="trainhall-bench-") as name,
        cluster(Path(name)) as api,
    ):
        job = Job(api)
        with torchrun(Path(name) / "torchrun") as peer:
            print("seconds from SIGKILL to the next step")
            print("  round  trainhall  redone   torchrun  redone")
            for number in range(1, options.rounds + 1):
                mine, other = job.recover(number % 2), peer.recover(number % 2)
                ours.append(mine)
                text = f"  {number:5}{mine.seconds:11.3f}{mine.redone:8}"
                if other is None:
                    print(f"{text}       hung", flush=True)
                    continue
                peers.append(other)
                print(f"{text}{other.seconds:11.3f}{other.redone:8}", flush=True)
            hung = peer.hung
        row = [job.recover(number % 2) for number in range(options.recoveries)]
        pauses = [(job.pause(), job.resume()) for _ in range(options.commands)]
        api.delete(f"/training/jobs/{job.id}").raise_for_status()
        wait_for("the end", lambda: True if job.state()["state"] == "cancelled" else None)
    print("\nwhere the time goes (medians)")
    _print_parts(PARTS.values(), [recovery.parts for recovery in ours + row])
    _print_parts(PAUSE_PARTS, [pause.parts for pause, _ in pauses])
    _print_parts(RESUME_PARTS, [resume.parts for _, resume in pauses])
    _report(ours, peers, hung, row, pauses)


def _print_parts(names: Iterable[str], rows: list[tuple[float | None, ...]]) -> None:
    for part, *column in zip(names, *rows, strict=True):
        measured = [seconds for seconds in column if seconds is not None]
        if measured:
            print(f"  {statistics.median(measured):8.3f} s {part}")


def _report(
    ours: list[Recovery],
    peers: list[Recovery],
    hung: int,
    row: list[Recovery],
    pauses: list[tuple[Command, Command]],
) -> None:
    mine = statistics.median(r.seconds for r in ours)
    figures = [Figure("SIGKILL to next step", mine, "s")]
    if peers:
        other = statistics.median(r.seconds for r in peers)
        figures.append(Figure("torchrun's", other, "s"))
        figures.append(Figure("ratio", other / mine, at_least=GOAL_RATIO))
    figures.append(Figure("torchrun hung", hung))
    everything = ours + row
    in_place = [r for r in everything if r.in_place]
    figures.append(Figure("in place", len(in_place) / len(everything) * 100, "%"))
    figures.append(Figure("steps redone, at most", max(r.redone for r in everything)))
    if row:
        figures.append(Figure("recoveries in a row", len(row)))
        figures.append(Figure("slowest of them", max(r.seconds for r in row), "s"))
    if pauses:
        paused = statistics.median(pause.seconds for pause, _ in pauses)
        resumed = statistics.median(resume.seconds for _, resume in pauses)
        figures.append(Figure("pause", paused, "s", at_most=GOAL_PAUSE_SECONDS))
        figures.append(Figure("resume to next step", resumed, "s", at_most=GOAL_RESUME_SECONDS))
    report(*figures)


if __name__ == "__main__":
    main()
