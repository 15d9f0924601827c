"""What ranks do whose host does not reach the coordinator: they end before their job runs elsewhere
(`on_isolation: stop`), or go on and are void (`keep`)."""

import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cluster.cluster import Cluster, Program
from support.waiting import eventually

pytestmark = pytest.mark.acceptance

TIMES = {"TRAINHALL_SUSPECT_AFTER": "5", "TRAINHALL_LOST_AFTER": "12"}
LEDGER = """
import os, time
attempt = os.environ["TRAINHALL_ATTEMPT"]
while True:
    with open("ledger", "a") as file:
        file.write(f"{attempt} {time.monotonic()}\\n")
    time.sleep(0.02)
"""


class TwoHosts(Cluster):
    """A coordinator that gives nodes up soon, and two agents with a slot each."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, slots=1)
        self.coordinator.env |= TIMES
        self.agents: dict[str, Program] = {}

    def start(self) -> None:
        self.start_coordinator()
        for name in ("here", "there"):
            token = self.post("/cluster/nodes", json={"name": name})["join_token"]
            arguments = [
                "agent", "--coordinator", self.url, "--token", token,
                "--data-dir", str(self.folder / name), "--slots", "1",
            ]  # fmt: skip
            self.agents[name] = Program(name, arguments, self.folder, self.agent.env)
            self.agents[name].start()
        eventually("both nodes to be ready", lambda: self.states() == {"ready"})

    def states(self) -> set[str]:
        return {node["state"] for node in self.get("/cluster/nodes")["items"]}

    def host_of(self, job_id: str) -> str:
        attempt = self.get(f"/training/jobs/{job_id}/attempts")["items"][-1]
        return str(attempt["allocation"][0]["node_name"])

    def write_ledger(self, folder: Path, on_isolation: str) -> str:
        script = folder / "ledger.py"
        script.write_text(LEDGER)
        recovery = {"on_isolation": on_isolation, "grace_seconds": 1}
        job = self.submit(
            {"name": on_isolation, "script": {"path": str(script)}, "recovery": recovery}
        )
        eventually("a line", lambda: ledger(folder).get(1))
        return job

    def attempt_is(self, job_id: str, number: int) -> bool:
        return bool(self.job(job_id)["attempt"] == number)


def ledger(folder: Path) -> dict[int, list[float]]:
    """When each attempt wrote, by its number."""
    found: dict[int, list[float]] = {}
    path = folder / "ledger"
    for line in path.read_text().splitlines() if path.exists() else []:
        number, time = line.split()
        found.setdefault(int(number), []).append(float(time))
    return found


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[TwoHosts]:
    cluster = TwoHosts(tmp_path / "cluster")
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.sweep()
        for program in (*cluster.agents.values(), cluster.coordinator):
            if program.process is not None:
                program.process.wait()
        cluster.http.close()


def elsewhere(hosts: TwoHosts, folder: Path) -> dict[int, list[float]]:
    """What was written until the second attempt had, too."""
    eventually("the second attempt to write", lambda: ledger(folder).get(2))
    return ledger(folder)


@pytest.mark.parametrize(
    "freeze",
    [pytest.param(True, id="frozen"), pytest.param(False, id="killed", marks=pytest.mark.slow)],
)
def test_ranks_end_before_their_job_runs_elsewhere(
    hosts: TwoHosts, tmp_path: Path, freeze: bool
) -> None:
    job = hosts.write_ledger(tmp_path, "stop")
    agent = hosts.agents[hosts.host_of(job)]
    if freeze:
        agent.signal(signal.SIGSTOP)
    else:
        agent.kill()
    wrote = elsewhere(hosts, tmp_path)
    assert max(wrote[1]) < min(wrote[2])
    assert not [p for p in hosts.rank_processes(job) if p.environ()["TRAINHALL_ATTEMPT"] == "1"]
    if freeze:
        agent.signal(signal.SIGCONT)
    else:
        agent.start()
    eventually("both nodes to be ready", lambda: hosts.states() == {"ready"})
    assert hosts.attempt_is(job, 2)

    def attempts() -> list[str]:
        return [a["state"] for a in hosts.get(f"/training/jobs/{job}/attempts")["items"]]

    # That its ranks run is told by their agent, maybe later than they write.
    eventually("the second to run", lambda: attempts() == ["lost", "running"])


@pytest.mark.slow
def test_kept_ranks_end_when_their_agent_reconnects(hosts: TwoHosts, tmp_path: Path) -> None:
    job = hosts.write_ledger(tmp_path, "keep")
    agent = hosts.agents[hosts.host_of(job)]
    agent.signal(signal.SIGSTOP)
    wrote = elsewhere(hosts, tmp_path)
    count = len(wrote[1])
    eventually("the first to go on", lambda: len(ledger(tmp_path)[1]) > count)
    agent.signal(signal.SIGCONT)

    def attempts() -> set[Any]:
        return {p.environ()["TRAINHALL_ATTEMPT"] for p in hosts.rank_processes(job)}

    eventually("the first to end", lambda: attempts() == {"2"})
    hosts.wait_for(job, "running")


@pytest.mark.slow
def test_stopped_coordinator_declares_no_node_lost(hosts: TwoHosts, tmp_path: Path) -> None:
    """Far longer than after which a node is lost, and nobody is."""
    job = hosts.write_ledger(tmp_path, "keep")
    hosts.coordinator.signal(signal.SIGSTOP)
    count = len(ledger(tmp_path)[1])
    eventually("15 s of lines", lambda: len(ledger(tmp_path)[1]) > count + 600, timeout=120)
    hosts.coordinator.signal(signal.SIGCONT)
    eventually("it to answer", hosts.is_ready)
    database = sqlite3.connect(hosts.folder / "coordinator" / "trainhall.db")
    seen = {state for (state,) in database.execute("SELECT state FROM node_events")}
    database.close()
    assert "lost" not in seen
    assert hosts.attempt_is(job, 1)


def test_node_removed_while_away_ends_its_ranks(hosts: TwoHosts, tmp_path: Path) -> None:
    job = hosts.write_ledger(tmp_path, "keep")
    name = hosts.host_of(job)
    agent = hosts.agents[name]
    agent.signal(signal.SIGSTOP)
    elsewhere(hosts, tmp_path)
    (node,) = [n for n in hosts.get("/cluster/nodes")["items"] if n["name"] == name]
    assert node["state"] == "lost"
    hosts.request("DELETE", f"/cluster/nodes/{node['id']}")
    agent.signal(signal.SIGCONT)
    assert agent.process is not None
    assert agent.process.wait(timeout=60) == 1
    assert "was removed" in agent.output().splitlines()[-1]
    assert {p.environ()["TRAINHALL_ATTEMPT"] for p in hosts.rank_processes(job)} == {"2"}
