"""Disks that are full, and a database that is stopped hard: training goes on, nothing is lost."""

import errno
import os
import time
from pathlib import Path

import httpx
from chaos.clusters import ChaosCluster, Shape
from chaos.curves import every_step_once
from chaos.faults.coordinator import check_truth
from chaos.jobs import enough, stepping, telling
from chaos.postgres import postgres
from chaos.stage import Play
from support.archives import archive
from support.waiting import eventually

_FULL_SECONDS = 4.0
"""Some checkpoints, heartbeats, packings and tries to ship fall into it."""
_PAUSE = 0.02
_ONE_HOST = Shape(hosts=1)
_SMALL_DISKS = Shape(hosts=1, small_disks=True)


def full_agent_disk(play: Play) -> None:
    """Fill a host's disk for a while: its ranks train on, and reports resume."""
    report = play.report
    with play.stage.cluster(_SMALL_DISKS) as cluster:
        job = cluster.submit(stepping(workers=1, pause=_PAUSE))
        cluster.wait_for_step(job, 10)
        ranks = [process.pid for process in cluster.ranks(job)]
        for _ in play.times():
            seen = cluster.job(job)["step"]
            filler = _fill(play, cluster.hosts[0].data)
            report.inject("disk of a host full")
            time.sleep(_FULL_SECONDS)  # this is the fault
            now = [process.pid for process in cluster.ranks(job)]
            report.check("the ranks kept their processes", now == ranks, (ranks, now))
            filler.unlink()
            cluster.wait_for_step(job, seen + round(_FULL_SECONDS / _PAUSE / 4))
            report.check("training continued, and reports resumed", True)
        report.check("it is the first attempt", len(cluster.attempts(job)) == 1)
        saved = _newest_checkpoint(cluster, job)
        eventually("another checkpoint", lambda: _newest_checkpoint(cluster, job) > saved)
        report.check("checkpoints are saved again", True)
        every_step_once(play, cluster, job)


def _newest_checkpoint(cluster: ChaosCluster, job: str) -> int:
    """Its step; 0 without one."""
    items = cluster.get(f"/checkpoints/jobs/{job}")["items"]
    return max((int(item["step"]) for item in items), default=0)


def full_coordinator_disk(play: Play) -> None:
    """Fill the coordinator's disk for a while: training continues, and all reports arrive."""
    report = play.report
    with play.stage.cluster(_SMALL_DISKS) as cluster:
        for number in play.times():
            folder = play.folder / str(number)
            job = cluster.submit(telling(folder, pause=_PAUSE))
            cluster.wait_for_step(job, 10)
            filler = _fill(play, cluster.folder / "coordinator")
            report.inject("disk of the coordinator full")
            report.check("it is not ready", httpx.get(f"{cluster.url}/readyz").status_code == 503)
            sha256, code = archive(train="print(1)")
            sent = cluster.http.put(f"{cluster.url}/api/v1/training/code/{sha256}", content=code)
            report.check("code is answered with 507", sent.status_code == 507, sent.text)
            time.sleep(_FULL_SECONDS)  # this is the fault
            filler.unlink()
            report.check("it is ready", httpx.get(f"{cluster.url}/readyz").status_code == 200)
            enough(folder)
            done = cluster.wait_for(job, "completed")
            report.check("the job completed in its first attempt", done["attempt"] == 1, done)
            check_truth(play, cluster, job, folder, ranks=2)


def stopped_postgres(play: Play) -> None:
    """Kill Postgres and restart it: training continues, and all reports arrive."""
    report = play.report
    with (
        postgres() as database,
        play.stage.cluster_on(database.url, _ONE_HOST) as cluster,
    ):
        for number in play.times():
            folder = play.folder / str(number)
            job = cluster.submit(telling(folder, pause=_PAUSE))
            cluster.wait_for_step(job, 10)
            database.stop_hard()
            report.inject("Postgres ended by SIGKILL")
            before = len((folder / "rank-0").read_text())
            time.sleep(play.chance.uniform(0.2, 2.0))  # this is the fault
            after = len((folder / "rank-0").read_text())
            report.check("training continued meanwhile", after > before)
            database.start()
            enough(folder)
            done = cluster.wait_for(job, "completed")
            report.check("the job completed in its first attempt", done["attempt"] == 1, done)
            check_truth(play, cluster, job, folder, ranks=2)


def _fill(play: Play, folder: Path) -> Path:
    """Take all room that is left on the folder's disk; the file to remove afterwards."""
    filler = folder / "filler"
    block = bytes(1 << 16)
    with filler.open("wb", buffering=0) as file:
        while len(block) > 0:
            try:
                written = file.write(block)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                written = 0
            if written == 0:
                block = block[: len(block) // 2]
    play.report.check("nothing more could be written", os.statvfs(folder).f_bavail == 0)
    return filler
