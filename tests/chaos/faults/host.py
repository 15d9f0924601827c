"""Agents and hosts that die, freeze or are cut off: jobs continue, revoked attempts are fenced."""

import signal
import time
from collections.abc import Callable
from functools import partial

from chaos.clusters import LOST_SECONDS, PATIENT, QUICK, ChaosCluster, Host, Shape
from chaos.curves import every_step_once
from chaos.jobs import stepping
from chaos.network import why_not_root
from chaos.stage import Play
from support.waiting import eventually

_SURE_SECONDS = 60
_SUSPECTED_HOST = Shape(
    hosts=1, own_network=True, times=(("heartbeat_seconds", 0.3), ("suspect_after_seconds", 2.0))
)
"""Suspected after seconds, and given up as late as in production."""


def _silent_hosts() -> Shape:
    """On loopback where networks may not be made; what cuts hosts off is not played there."""
    return Shape(hosts=3, slots=1, own_network=why_not_root() is None, times=QUICK)


def killed_agent(play: Play) -> None:
    """Kill and restart an agent: its ranks notice nothing, and no step is missing."""
    report = play.report
    with play.stage.cluster(PATIENT) as cluster:
        job = cluster.submit(stepping())
        cluster.wait_for_step(job, 10)
        (host,) = cluster.hosts_of(job)
        ranks = [process.pid for process in cluster.ranks(job)]
        for _ in play.times():
            host.agent.kill()
            report.inject("agent killed by SIGKILL")
            time.sleep(play.chance.uniform(0, 0.5))  # what the ranks write meanwhile has to keep
            host.power_on()
            began = time.monotonic()
            seen = cluster.job(job)["step"]
            cluster.wait_for_step(job, seen + 10)
            report.slowest(
                "s, slowest from an agent's start to its first report", time.monotonic() - began
            )
            now = [process.pid for process in cluster.ranks(job)]
            report.check("the ranks kept their processes", now == ranks, (ranks, now))
        report.check("it is the first attempt", len(cluster.attempts(job)) == 1)
        every_step_once(play, cluster, job)
        eventually("every node to be ready again", cluster.all_are_ready)


def powered_off_host(play: Play) -> None:
    """Power off a host: the job resumes elsewhere, and the host may return."""
    with play.stage.cluster(_silent_hosts()) as cluster:
        for _ in play.times():
            job = cluster.submit(stepping(workers=1))
            wait_for_checkpoint(cluster, job)
            (host,) = cluster.hosts_of(job)
            _lose(play, cluster, job, host, host.power_off, "host powered off")
            host.power_on()
            eventually("the host to be ready again", cluster.all_are_ready, timeout=_SURE_SECONDS)
            play.report.check("the host returned as ready", True)
            _end(play, cluster, job)


def frozen_agent(play: Play) -> None:
    """Freeze an agent beyond the lost timeout: its ranks' results are fenced."""
    with play.stage.cluster(_silent_hosts()) as cluster:
        for _ in play.times():
            job = cluster.submit(stepping(workers=1))
            wait_for_checkpoint(cluster, job)
            (host,) = cluster.hosts_of(job)
            freeze = partial(host.agent.signal, signal.SIGSTOP)
            try:
                _lose(play, cluster, job, host, freeze, "agent stopped by SIGSTOP")
                _outlive(play, cluster, job)
            finally:
                host.agent.signal(signal.SIGCONT)
            _check_revoked(play, cluster, job)
            _end(play, cluster, job)


def partition(play: Play) -> None:
    """Cut off a host and reconnect it: its ranks end, and their results are fenced."""
    with play.stage.cluster(_silent_hosts()) as cluster:
        assert cluster.net is not None
        for _ in play.times():
            job = cluster.submit(stepping(workers=1))
            wait_for_checkpoint(cluster, job)
            (host,) = cluster.hosts_of(job)
            network_host = cluster.net.hosts[cluster.hosts.index(host)]
            cut = partial(cluster.net.cut, network_host)
            try:
                _lose(play, cluster, job, host, cut, "host cut off: its packets vanish")
                _outlive(play, cluster, job)
            finally:
                cluster.net.heal(network_host)
            _check_revoked(play, cluster, job)
            _end(play, cluster, job)


def short_partition(play: Play) -> None:
    """Cut off a host for less than the lost timeout: nothing restarts, no step is missing."""
    report = play.report
    with play.stage.cluster(_SUSPECTED_HOST) as cluster:
        assert cluster.net is not None
        job = cluster.submit(stepping(workers=1))
        cluster.wait_for_step(job, 10)
        (host,) = cluster.hosts_of(job)
        network_host = cluster.net.hosts[cluster.hosts.index(host)]
        for _ in play.times():
            cluster.net.cut(network_host)
            report.inject("host cut off for less than the lost timeout")
            eventually("the node to be suspect", lambda: cluster.node(host)["state"] == "suspect")
            cluster.net.heal(network_host)
            seen = cluster.job(job)["step"]
            cluster.wait_for_step(job, seen + 20)
            report.check("reports resumed", True)
            eventually("the node to be ready", lambda: cluster.node(host)["state"] == "ready")
            report.check("the node became ready again", True)
        report.check("it is the first attempt", len(cluster.attempts(job)) == 1)
        every_step_once(play, cluster, job)


def lost_host_of_two(play: Play) -> None:
    """Power off one of two hosts of a job: it resumes on two of the three."""
    with play.stage.cluster(_silent_hosts()) as cluster:
        for _ in play.times():
            job = cluster.submit(stepping(workers=2))
            wait_for_checkpoint(cluster, job)
            host = play.chance.choice(cluster.hosts_of(job))
            play.report.check("its ranks are on two hosts", len(cluster.hosts_of(job)) == 2)
            _lose(play, cluster, job, host, host.power_off, "one of a job's two hosts powered off")
            host.power_on()
            eventually("the host to be ready again", cluster.all_are_ready, timeout=_SURE_SECONDS)
            _end(play, cluster, job)


def _lose(
    play: Play,
    cluster: ChaosCluster,
    job: str,
    host: Host,
    fault: Callable[[], None],
    what: str,
) -> None:
    """Inject a fault that makes a host silent, and see that the job steps elsewhere in time."""
    report = play.report
    before = cluster.job(job)
    began = time.time()
    fault()
    report.inject(what)

    def steps_elsewhere() -> float | None:
        now = cluster.job(job)
        if now["state"] != "running" or host in cluster.hosts_of(job):
            return None
        return cluster.first_step(job)

    stepped = eventually("the job to step elsewhere", steps_elsewhere, timeout=_SURE_SECONDS)
    assert stepped is not None
    report.check("the job continued on another host", True)
    report.slowest(
        "s beyond the lost timeout, slowest until it stepped elsewhere",
        stepped - began - LOST_SECONDS,
    )
    newest = cluster.job(job)["attempt"]
    begun = [event["reason"] for event in cluster.events(job) if event["attempt"] == newest]
    resumed = newest == before["attempt"] or any("starts from step-" in reason for reason in begun)
    report.check("it resumed where it had saved, or in place", resumed, begun)
    state = cluster.node(host)["state"]
    report.check("the silent host is lost", state == "lost", state)


def _outlive(play: Play, cluster: ChaosCluster, job: str) -> None:
    """While nobody hears the lost host, its ranks train on, beside those of the new attempt."""
    old = cluster.ranks(job, attempt=1)
    play.report.check("the isolated ranks continue, as on_isolation: keep says", old)


def _check_revoked(play: Play, cluster: ChaosCluster, job: str) -> None:
    """The host is heard again: every write of the attempt that was replaced is refused or void."""
    report = play.report
    revoked = [a["attempt"] for a in cluster.attempts(job) if a["state"] == "lost"]
    report.check("the silent host's attempt is lost", revoked == [1], revoked)
    began = time.monotonic()
    eventually(
        "the replaced ranks to end",
        lambda: not cluster.ranks(job, attempt=1),
        timeout=_SURE_SECONDS,
    )
    report.check("the replaced ranks ended", True)
    report.slowest("s, slowest from reconnecting to the end of old ranks", time.monotonic() - began)
    eventually("every node to be ready", cluster.all_are_ready, timeout=_SURE_SECONDS)
    lost_at = next(a["finished_at"] for a in cluster.attempts(job) if a["attempt"] == 1)
    late = [
        saved
        for saved in cluster.get(f"/checkpoints/jobs/{job}")["items"]
        if saved["attempt"] == 1 and saved["created_at"] > lost_at
    ]
    report.check("no checkpoint of it was committed after that", not late, late)
    state = cluster.attempts(job)[0]["state"]
    report.check("it stays lost, whatever its host reports", state == "lost", state)
    live = len(cluster.ranks(job))
    report.check("one attempt's ranks are alive", live == cluster.job(job)["world_size"], live)


def _end(play: Play, cluster: ChaosCluster, job: str) -> None:
    step = cluster.job(job)["step"]
    cluster.wait_for_step(job, step + 10)
    every_step_once(play, cluster, job)
    cluster.request("DELETE", f"/training/jobs/{job}")
    cluster.wait_for(job, "cancelled")
    eventually("its ranks to end", lambda: not cluster.ranks(job))


def wait_for_checkpoint(cluster: ChaosCluster, job: str) -> None:
    eventually(
        "a committed checkpoint",
        lambda: cluster.get(f"/checkpoints/jobs/{job}")["items"],
        timeout=_SURE_SECONDS,
    )
