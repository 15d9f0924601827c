"""Coordinators that die, or are away: nothing is lost, nothing happens twice, nobody stops."""

import contextlib
import threading
import time
from functools import partial
from typing import Any

import httpx
from chaos.clusters import PATIENT, ChaosCluster
from chaos.curves import every_step_once
from chaos.jobs import enough, launches, once, stepping, telling, truth
from chaos.stage import Play
from support.waiting import eventually

_WITHIN_SECONDS = 0.25
"""A submission takes less than that, and so do a placement and a launch."""


def _points_as(
    cluster: ChaosCluster, job: str, rank: int | None, expected: list[tuple[int, float]]
) -> list[tuple[int, float]] | None:
    found = cluster.points(job, "value", rank)
    return found if found == expected else None


def _has_lines(cluster: ChaosCluster, job: str, rank: int, expected: list[str]) -> bool:
    return cluster.log_text(job, rank).splitlines() == expected


def killed_coordinator(play: Play) -> None:
    """Kill the coordinator at each submission or launch: none is lost, none happens twice."""
    report, chance, folder = play.report, play.chance, play.folder
    with play.stage.cluster(PATIENT) as cluster:
        witness = cluster.submit(stepping(workers=1))
        cluster.wait_for_step(witness, 1)
        ranks = [process.pid for process in cluster.ranks(witness)]
        jobs: dict[str, str] = {}
        for number in play.times():
            key = str(number)
            spec = once(folder, key, seconds=chance.uniform(0, 0.3))
            moment = chance.choice(("during a submission", "during a launch"))
            kill = threading.Timer(chance.uniform(0, _WITHIN_SECONDS), cluster.coordinator.kill)
            if moment == "during a submission":
                kill.start()
            first = _post(cluster, key, spec)
            if moment == "during a launch":
                kill.start()
            kill.join()
            report.inject(f"coordinator killed by SIGKILL {moment}")
            began = time.monotonic()
            cluster.start_coordinator()
            report.slowest("s, slowest restart of a coordinator", time.monotonic() - began)
            jobs[key] = str(cluster.post(
                "/training/jobs", json=spec, headers={"Idempotency-Key": key}
            )["id"])  # fmt: skip
            if first is not None:
                report.check("an acknowledged submission is there", first == jobs[key])
        for job in jobs.values():
            done = cluster.wait_for(job, "completed", timeout=120)
            report.check("a job completed in its first attempt", done["attempt"] == 1, done)
        ledger = launches(folder)
        for key in jobs:
            entries = sorted(ledger[key])
            report.check("its ranks were launched once", entries == [(1, 0), (1, 1)], entries)
        names = [job["name"] for job in cluster.everything("/training/jobs")]
        report.check(
            "one submission made one job", all(names.count(f"once {key}") == 1 for key in jobs)
        )
        now = [process.pid for process in cluster.ranks(witness)]
        report.check("a running job kept its processes", now == ranks, (ranks, now))
        step = cluster.job(witness)["step"]
        cluster.wait_for_step(witness, step + 5)
        every_step_once(play, cluster, witness)


def _post(cluster: ChaosCluster, key: str, spec: Any) -> str | None:
    """The job's id if the coordinator lived to tell it."""
    with contextlib.suppress(httpx.TransportError):
        reply = cluster.http.post(
            f"{cluster.url}/api/v1/training/jobs", json=spec, headers={"Idempotency-Key": key}
        )
        assert reply.status_code == 201, reply.text
        return str(reply.json()["id"])
    return None


def absent_coordinator(play: Play) -> None:
    """Stop the coordinator for RUNS seconds: training continues, and all reports arrive."""
    report, away = play.report, float(play.runs)
    folder = play.folder
    with play.stage.cluster(PATIENT) as cluster:
        pause = 0.01 if away < 60 else 0.1
        job = cluster.submit(telling(folder, pause=pause))
        eventually("the ranks to begin", lambda: len(list(folder.glob("rank-*"))) == 2)
        cluster.wait_for_step(job, 10)
        cluster.coordinator.kill()
        report.inject(f"coordinator away for {away:g} s")
        before = len(truth(folder, 0))
        time.sleep(away)  # this is the fault
        least = 0.5 * away / (pause + 0.01)

        def did() -> int:
            return len(truth(folder, 0)) - before

        # It stays away for longer on a machine on which that takes longer.
        eventually("training to go on meanwhile", lambda: did() > least)
        report.check("training continued meanwhile", True)
        report.figure("steps while the coordinator was away", did())
        cluster.start_coordinator()
        enough(folder)
        began = time.monotonic()
        done = cluster.wait_for(job, "completed", timeout=away + 120)
        report.check("the job completed in its first attempt", done["attempt"] == 1, done)
        compared = check_truth(play, cluster, job, folder, ranks=2)
        report.figure("steps of two ranks compared by content", compared)
        report.figure("s from its return until all was there", time.monotonic() - began)


def check_truth(play: Play, cluster: ChaosCluster, job: str, folder: Any, ranks: int) -> int:
    """Compare each rank's records with the coordinator's; return the number of steps compared."""
    compared = 0
    for rank in range(ranks):
        did = truth(folder, rank)
        series = rank if rank else None
        points = eventually(
            f"the points of rank {rank}",
            partial(_points_as, cluster, job, series, [(s, v) for _, s, v in did]),
        )
        play.report.check("metrics are what the rank reported, point by point", points)
        written = [f"{a} {s} {v!r}" for a, s, v in did]
        eventually(
            f"the lines of rank {rank}",
            partial(_has_lines, cluster, job, rank, written),
        )
        play.report.check("logs are what the rank printed, line by line", True)
        compared += len(did)
    return compared
