"""People who change their minds: commands at random times, and no job is ever stuck."""

import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from support.cluster.cluster import FINAL

from chaos.clusters import ChaosCluster, Shape
from chaos.jobs import stepping
from chaos.stage import Play

_SHAPE = Shape(times=(("grow_after_seconds", 0.5),))
"""Elastic jobs grow within their short lives."""
_AT_ONCE = 6
"""Jobs: more than there is room for, so that some wait."""
_PATIENCE_SECONDS = 120
"""From the last command on a job to the next one, or to its end."""
_COMMANDS = ("pause",) * 4 + ("resume",) * 3 + ("resize",) * 3 + ("cancel",)
_DRAIN_CHANCE = 0.05
_COMMAND_CHANCE = 0.15
"""At each look at a job, some hundredths of a second after the one before: one that runs is hit
anywhere in its life."""
_WAITS_CHANCE = 0.7
"""That a command waits for the job to have left the queue. Else most would come before that."""
_RESOURCES = (
    {"workers": 1, "device": "cpu"},
    {"workers": 2, "device": "cpu"},
    {"min_workers": 1, "max_workers": 3, "device": "cpu"},
)
"""What a job begins with, or is resized to. The last also changes its size by itself, whenever
devices come free or are asked for."""


@dataclass
class _Subject:
    job: str
    left: int
    """Commands that it still gets."""
    since: float
    """The time of the last one (monotonic)."""
    waits: bool
    """The next one does not come while the job is queued."""


def random_commands(play: Play) -> None:
    """Pause, resume, cancel, resize and drain at random: every job ends."""
    report, chance = play.report, play.chance
    with play.stage.cluster(_SHAPE) as cluster:
        times = play.times()
        subjects: list[_Subject] = []
        resizes = 0
        while True:
            while len(subjects) < _AT_ONCE and next(times, None) is not None:
                spec = stepping(
                    chance.randrange(5, 200), pause=0.02, resources=chance.choice(_RESOURCES)
                )
                job, left = cluster.submit(spec), chance.randrange(1, 5)
                subjects.append(_Subject(job, left, time.monotonic(), _waits(play)))
            if not subjects:
                break
            for subject in chance.sample(subjects, len(subjects)):
                state = cluster.job(subject.job)["state"]
                if state in FINAL:
                    subjects.remove(subject)
                    if state == "failed":
                        report.check("no job failed", False, _shown(cluster, subject))
                    report.check(f"a job came to its end: {state}", True)
                    resizes += _resizes(cluster, subject.job)
                    continue
                may_come = subject.left and not (subject.waits and state == "queued")
                if may_come and chance.random() < _COMMAND_CHANCE:
                    subject.left -= 1
                    subject.since, subject.waits = time.monotonic(), _waits(play)
                    _command(play, cluster, subject, chance.choice(_COMMANDS), state)
                elif not subject.left and state == "paused":
                    _command(play, cluster, subject, "resume", state)
                if time.monotonic() - subject.since > _PATIENCE_SECONDS:
                    report.check("no job is stuck", False, _shown(cluster, subject))
            if chance.random() < _DRAIN_CHANCE:
                _toggle_drain(play, cluster)
            time.sleep(chance.uniform(0, 0.1))
        report.figure("times that a job went on at another size", resizes)
        for host in cluster.hosts:
            cluster.post(f"/cluster/nodes/{cluster.node(host)['id']}/undrain")
        for node in cluster.get("/cluster/nodes")["items"]:
            held = [device["job_id"] for device in node["devices"] if device["job_id"]]
            report.check("its devices are free again", not held, held)


def _waits(play: Play) -> bool:
    return play.chance.random() < _WAITS_CHANCE


def _resizes(cluster: ChaosCluster, job: str) -> int:
    sizes = [g["world_size"] for a in cluster.attempts(job) for g in a["generations"]]
    return sum(before != after for before, after in pairwise(sizes))


def _toggle_drain(play: Play, cluster: ChaosCluster) -> None:
    """Of the first host alone, so that there is always some room."""
    node = cluster.node(cluster.hosts[0])
    command = "undrain" if node["state"] in ("draining", "drained") else "drain"
    cluster.post(f"/cluster/nodes/{node['id']}/{command}", json={} if command == "drain" else None)
    play.report.inject(f"{command} a node")


def _command(
    play: Play, cluster: ChaosCluster, subject: _Subject, command: str, state: str
) -> None:
    path = f"{cluster.url}/api/v1/training/jobs/{subject.job}"
    if command == "cancel":
        reply = cluster.http.delete(path)
    elif command == "resize":
        wanted = play.chance.choice(_RESOURCES)
        asked = {name: count for name, count in wanted.items() if name != "device"}
        reply = cluster.http.put(f"{path}/resize", json=asked)
    else:
        reply = cluster.http.put(f"{path}/{command}")
    play.report.inject(f"{command}: {state}")
    # What does not fit the job's state is refused, and changes nothing.
    refused = reply.status_code == 409
    what = "a command was refused with 409" if refused else "a command was done"
    play.report.check(what, refused or reply.status_code == 202, reply.text)


def _shown(cluster: ChaosCluster, subject: _Subject) -> Any:
    job = cluster.job(subject.job)
    return f"{job['state']}: {job['reason']}\n{cluster.story(subject.job)}"
