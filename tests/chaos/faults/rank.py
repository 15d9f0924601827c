"""Ranks that die or run out of memory: the job goes on, and says what happened."""

import signal
import time
from typing import Any

from chaos.clusters import PATIENT, ChaosCluster, memory_group, memory_limit
from chaos.curves import every_step_once
from chaos.faults.host import wait_for_checkpoint
from chaos.jobs import script, stepping
from chaos.stage import Play
from support.waiting import eventually

_KILLS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS)
_FAILS_FIRST = """
import os, sys
if os.environ["TRAINHALL_ATTEMPT"] == "1" and os.environ["RANK"] == "1":
    {fault}
"""
_TAKE_ALL = """blocks = []
    while True:
        blocks.append(bytearray(b"x" * (1 << 22)))"""
_LIMITED = f"""import resource
    resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))
    {_TAKE_ALL}"""
_IN_GROUP = """from pathlib import Path
    Path({group!r}, "cgroup.procs").write_text(str(os.getpid()))
    {take_all}"""
_GROUP_BYTES = 1 << 26
_SURE_SECONDS = 60


def killed_rank(play: Play) -> None:
    """Kill one of two ranks: the job continues, and names the rank and the signal."""
    report = play.report
    with play.stage.cluster(PATIENT) as cluster:
        job = cluster.submit(stepping())
        wait_for_checkpoint(cluster, job)
        for _ in play.times():
            before = cluster.job(job)
            number = play.chance.choice(_KILLS)
            rank = play.chance.randrange(2)
            began = time.monotonic()
            cluster.ranks(job)[rank].send_signal(number)
            report.inject(f"rank ended by {number.name}")
            _wait_for_next(cluster, job, before)
            report.slowest("s, slowest until five steps further", time.monotonic() - began)
            report.check("the job continued", True)
            failure = _failure(cluster, job, before)
            reported = (failure["rank"], failure["signal"])
            report.check("rank and signal are named", reported == (rank, number), failure)
        every_step_once(play, cluster, job)


def _wait_for_next(cluster: ChaosCluster, job: str, before: Any) -> None:
    """Until a later attempt runs, or a later generation of the same, and has taken five steps."""
    token = (before["attempt"], before["generation"])

    def runs() -> bool:
        now = cluster.job(job)
        return (now["attempt"], now["generation"]) > token and now["state"] == "running"

    eventually("the job to run again", runs, timeout=_SURE_SECONDS)
    # Those who live have told steps of before the fault that were not known then.
    eventually("its next step", lambda: cluster.first_step(job), timeout=_SURE_SECONDS, every=0.2)
    cluster.wait_for_step(job, cluster.job(job)["step"] + 5)


def _failure(cluster: ChaosCluster, job: str, before: Any) -> Any:
    """What is told of the generation that was hit."""
    attempt = next(a for a in cluster.attempts(job) if a["attempt"] == before["attempt"])
    return next(
        incident["failure"]
        for incident in attempt["timeline"]
        if incident["generation"] == before["generation"]
    )


def hung_rank(play: Play) -> None:
    """Stop one of two ranks: it is found and named, and the job continues."""
    report = play.report
    with play.stage.cluster(PATIENT) as cluster:
        job = cluster.submit(stepping(recovery={"max_restarts": 1000, "hang_seconds": 2}))
        wait_for_checkpoint(cluster, job)
        for _ in play.times():
            before = cluster.job(job)
            rank = play.chance.randrange(2)
            began = time.monotonic()
            cluster.ranks(job)[rank].send_signal(signal.SIGSTOP)
            report.inject("rank stopped by SIGSTOP")
            _wait_for_next(cluster, job, before)
            report.slowest("s, slowest until five steps further", time.monotonic() - began)
            report.check("the job continued", True)
            failure = _failure(cluster, job, before)
            is_reported = failure["rank"] == rank and failure["message"].startswith("hang")
            report.check("the hang and its rank are named", is_reported, failure)
        every_step_once(play, cluster, job)


def ended_script(play: Play) -> None:
    """End a rank by exit code 1 or a memory limit: the next attempt completes the job."""
    faults = {
        "rank left with exit code 1": "sys.exit(1)",
        "rank at its memory limit (RLIMIT_AS)": _LIMITED,
    }
    with play.stage.cluster(PATIENT) as cluster:
        for number in play.times():
            for what, fault in faults.items():
                text = _FAILS_FIRST.format(fault=fault)
                spec = script(play.folder, f"fails-{number}-{len(what)}", text, workers=2)
                failure = _fails_once(play, cluster, what, spec)
                code = failure["exit_code"]
                play.report.check(
                    "rank 1 and its exit code are named", (failure["rank"], code) == (1, 1)
                )


def out_of_memory(play: Play) -> None:
    """Let the kernel kill a rank for memory: the reason says so, the next attempt completes."""
    group = memory_group()
    assert group is not None
    with play.stage.cluster(PATIENT) as cluster:
        group.mkdir(exist_ok=True)
        limit = memory_limit(group)
        assert limit is not None
        limit.write_text(str(_GROUP_BYTES))
        for number in play.times():
            text = _FAILS_FIRST.format(fault=_IN_GROUP.format(group=str(group), take_all=_TAKE_ALL))
            spec = script(play.folder, f"greedy-{number}", text, workers=2)
            failure = _fails_once(play, cluster, "rank out of memory (control group)", spec)
            named = failure["signal"] == signal.SIGKILL and "out of memory" in failure["message"]
            play.report.check("the reason is that memory ran out", named, failure)


def _fails_once(play: Play, cluster: ChaosCluster, what: str, spec: Any) -> Any:
    """What the first attempt failed with, of a job that completes in its second."""
    job = cluster.submit(spec)
    play.report.inject(what)
    done = cluster.wait_for(job, "completed")
    play.report.check("the second attempt completed the job", done["attempt"] == 2, done)
    return cluster.attempts(job)[0]["failure"]
