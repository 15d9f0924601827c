"""Jobs over hosts that go on in place, whether ranks, hosts or those that lead them fall."""

import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from chaos.clusters import LOST_SECONDS, QUICK, ChaosCluster, Host, Shape
from chaos.curves import every_step_once
from chaos.network import why_not_root
from chaos.stage import Play
from support.waiting import eventually

_SURE_SECONDS = 60
_SAME = ("chain_link", "chain_samples", "loss", "gradient_norm", "chain_weights")
"""Series of a reproducible job that no number of workers and no fault changes."""
_HOSTS = 3
_SAVED_EVERY = 50


def _shape(times: tuple[tuple[str, float], ...] = ()) -> Shape:
    own_network = why_not_root() is None
    times = (*times, ("grow_after_seconds", 0.5))
    return Shape(hosts=_HOSTS, slots=1, own_network=own_network, times=times)


def _spec(pause: float, **more: Any) -> Any:
    """A task of which every number of workers gives the same bits."""
    return {
        "name": "in place",
        "task": {"name": "synthetic", "params": {"step_seconds": pause, "hidden": [8]}},
        "resources": {"min_workers": 1, "max_workers": _HOSTS, "device": "cpu"},
        "training": {
            "steps": 100_000, "global_batch_size": 12, "reproducible": True, "logical_shards": 4,
        },
        "checkpoint": {"every_steps": _SAVED_EVERY},
        "recovery": {"max_restarts": 1000, "hang_seconds": 3},
        **more,
    }  # fmt: skip


class _InPlace:
    """The job of a scenario, one rank on each host, and what may not change under its faults."""

    def __init__(self, play: Play, cluster: ChaosCluster) -> None:
        self.play, self.cluster = play, cluster
        self.job = cluster.submit(_spec(0.02))
        self.settle(_HOSTS, 1)
        cluster.wait_for_step(self.job, 60)

    def pids(self) -> dict[str, int]:
        """The process of each host's rank, by the host's name. The rank that it was started as may
        be another's by now."""
        alive = {process.pid for process in self.cluster.ranks(self.job)}
        hosts = self.cluster.hosts
        return {h.name: p.pid for h in hosts for p in h.processes() if p.pid in alive}

    def settle(self, workers: int, above: int) -> None:
        """Wait until it takes steps with so many workers, in this generation or a later one."""

        def runs() -> bool:
            now = self.cluster.job(self.job)
            if now["state"] != "running" or now["generation"] < above:
                return False
            size = (now["world_size"], len(self.cluster.ranks(self.job)))
            return size == (workers, workers) and self.cluster.first_step(self.job) is not None

        try:
            eventually(f"{workers} workers, generation {above}", runs, timeout=_SURE_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.cluster.story(self.job)}") from None

    def after(self, what: str, fault: Callable[[], None], workers: int, *gone: str) -> float:
        """Inject a fault; the processes of all hosts but those `gone` go on, with so many.

        Returns:
            In how many seconds the next step came.
        """
        report, cluster = self.play.report, self.cluster
        before, generation = self.pids(), cluster.job(self.job)["generation"]
        began = time.time()
        fault()
        report.inject(what)
        self.settle(workers, generation + 1)
        stepped = cluster.first_step(self.job)
        assert stepped is not None
        seconds = stepped - began
        report.slowest(f"s, slowest to the next step: {what}", seconds)
        now = self.pids()
        kept = {name: pid for name, pid in before.items() if name not in gone}
        report.check("the others kept their processes", kept.items() <= now.items(), (before, now))
        shown = cluster.job(self.job)
        report.check("it is the first attempt", shown["attempt"] == 1, cluster.story(self.job))
        return seconds

    def rank_of(self, host: Host) -> int:
        return self.pids()[host.name]

    def send(self, host: Host, number: signal.Signals) -> None:
        pid = self.rank_of(host)
        next(p for p in self.cluster.ranks(self.job) if p.pid == pid).send_signal(number)

    def check_bits(self) -> None:
        """Compare all that it did with an undisturbed run of two workers, and end both."""
        report, cluster = self.play.report, self.cluster
        every_step_once(self.play, cluster, self.job)
        step = cluster.job(self.job)["step"]
        cluster.wait_for_step(self.job, step + 60)  # so that weights were hashed after the last
        (attempt,) = cluster.attempts(self.job)
        again = [incident["steps_redone"] for incident in attempt["timeline"]]
        # A generation that is lost before it steps tells nothing of that; the last one did step.
        is_reported = not again or again[-1] is not None
        report.check("no step was repeated", is_reported and not any(again), again)
        cluster.request("DELETE", f"/training/jobs/{self.job}")
        cluster.wait_for(self.job, "cancelled")
        did = {name: cluster.points(self.job, name) for name in _SAME}
        last = did["chain_weights"][-1][0]
        spec = _spec(0.0, resources={"workers": 2, "device": "cpu"})
        spec["training"]["steps"] = did["chain_link"][-1][0]
        whole = cluster.submit(spec)
        cluster.wait_for(whole, "completed", timeout=300)
        for name in _SAME:
            undisturbed = dict(cluster.points(whole, name))
            # Weights are hashed where they are saved, and a regrouping may save.
            both = [step for step, _ in did[name] if step in undisturbed]
            differ = [step for step, value in did[name] if undisturbed.get(step, value) != value]
            same = len(both) > last // _SAVED_EVERY - 1 and not differ
            report.check(f"{name} is that of an undisturbed run", same, (len(both), differ[:5]))
        report.figure("steps until the last weights that were compared", last)


def lost_in_place(play: Play) -> None:
    """Kill a rank, then a host of three, which returns: the job continues in place."""
    with play.stage.cluster(_shape(QUICK)) as cluster:
        running = _InPlace(play, cluster)
        for number in play.times():
            host = cluster.hosts[(number + 1) % _HOSTS]
            running.after(
                "a rank killed",
                partial(running.send, host, signal.SIGKILL),
                _HOSTS,
                host.name,
            )
            seconds = running.after(
                "a host without power",
                partial(_cut_power, cluster, host),
                _HOSTS - 1,
                host.name,
            )
            beyond = seconds - LOST_SECONDS
            play.report.slowest("s beyond the lost timeout, slowest to the next step", beyond)
            running.after("the host returned", partial(_give_power, cluster, host), _HOSTS)
        running.check_bits()


def _restarts(cluster: ChaosCluster, job: str, before: dict[str, Any]) -> bool:
    """Whether it runs in a later attempt or generation than `before`."""
    now = cluster.job(job)
    return now["state"] == "running" and bool(
        (now["attempt"], now["generation"]) > (before["attempt"], before["generation"])
    )


def _cut_power(cluster: ChaosCluster, host: Host) -> None:
    """No connection is closed, where networks may be made."""
    if cluster.net is not None:
        cluster.net.cut(cluster.net.hosts[cluster.hosts.index(host)])
    host.power_off()


def _give_power(cluster: ChaosCluster, host: Host) -> None:
    if cluster.net is not None:
        cluster.net.heal(cluster.net.hosts[cluster.hosts.index(host)])
    host.power_on()


def killed_while_regrouping(play: Play) -> None:
    """Kill a rank, and an agent or the coordinator during the regrouping: nothing is lost."""
    chance = play.chance
    with play.stage.cluster(_shape()) as cluster:
        running = _InPlace(play, cluster)

        def fall_with(host: Host, other: Host | None) -> None:
            running.send(host, signal.SIGKILL)
            time.sleep(chance.uniform(0, 0.3))  # a regrouping takes about as long
            program = cluster.coordinator if other is None else other.agent
            program.kill()
            time.sleep(chance.uniform(0, 1))
            if other is None:
                cluster.start_coordinator()
            else:
                other.power_on()

        for number in play.times():
            host = cluster.hosts[number % _HOSTS]
            next_one = cluster.hosts[(number + 1) % _HOSTS]
            for what, other in (
                ("its agent", host), ("another host's agent", next_one), ("the coordinator", None),
            ):  # fmt: skip
                running.after(
                    f"a rank killed, then {what}",
                    partial(fall_with, host, other),
                    _HOSTS,
                    host.name,
                )
        running.check_bits()


def hung_over_hosts(play: Play) -> None:
    """Stop a rank of a job on three hosts: it is named, all stacks are kept, the job continues."""
    report = play.report
    with play.stage.cluster(_shape()) as cluster:
        job = cluster.submit(_spec(0.02))
        for _ in play.times():
            host = play.chance.choice(cluster.hosts)
            cluster.wait_for_step(job, cluster.job(job)["step"] + 30)
            before = cluster.job(job)
            hosts = cluster.attempts(job)[-1]["allocation"]
            rank = [each["node_name"] for each in hosts].index(host.name)
            began = time.monotonic()
            cluster.ranks(job)[rank].send_signal(signal.SIGSTOP)
            report.inject("a rank of three hosts stopped by SIGSTOP")
            eventually(
                "the job to run again",
                partial(_restarts, cluster, job, before),
                timeout=_SURE_SECONDS,
            )
            cluster.wait_for_step(job, before["step"] + 30)
            report.slowest("s, slowest until thirty steps further", time.monotonic() - began)
            attempt = cluster.attempts(job)[before["attempt"] - 1]
            failure = attempt["timeline"][-1]["failure"]
            named = (failure["cause"], failure["rank"], failure["node"])
            report.check(
                "the rank and its host are named", named == ("hang", rank, host.name), named
            )
            for number in range(_HOSTS):
                text = cluster.log_text(job, number, "stderr")
                saved = f"no progress; stacks of rank {number}" in text
                report.check("the stacks of every rank are kept", saved, (number, text[-500:]))
                shown = number == rank or "most recent call first" in text
                report.check(
                    "they show where each rank was, except the stopped one", shown, text[-500:]
                )
        every_step_once(play, cluster, job)
