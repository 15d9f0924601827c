"""Into a running job: by the command line, through coordinator and agent, and out again."""

import asyncio
import contextlib
import json
from pathlib import Path

import psutil
import pytest
from support.cluster.agent_process import script
from support.cluster.cluster import Cluster
from support.forking import forks
from support.nodes.forwarded_port import read_from
from support.waiting import eventually

pytestmark = pytest.mark.acceptance

SERVER = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print("port", server.getsockname()[1], flush=True)
while True:
    connection, _ = server.accept()
    connection.sendall(b"from inside")
    connection.close()
"""


def start(cluster: Cluster, tmp_path: Path) -> tuple[str, int]:
    """A job that runs, and the port on which it answers."""
    job = cluster.submit({"name": "server", **script(tmp_path, SERVER)})
    cluster.wait_for(job, "running")
    line = eventually("a port", lambda: cluster.log_text(job, 0).partition("port ")[2])
    return job, int(line)


def test_users_get_into_a_running_job(cluster_of_its_own: Cluster, tmp_path: Path) -> None:
    cluster = cluster_of_its_own
    job, port = start(cluster, tmp_path)
    url = ["--url", cluster.url]
    text = "echo $TRAINHALL_JOB_ID; echo bad >&2; exit 3"
    done = forks.run(forks.TRAINHALL, ["exec", job, *url, "--", "sh", "-c", text])
    assert (done.returncode, done.stdout, done.stderr) == (3, f"{job}\n", "bad\n")
    assert asyncio.run(read_from(cluster.url, job, port)) == b"from inside"
    done = forks.run(forks.TRAINHALL, ["stacks", job, *url, "-o", "json"])
    assert [each["rank"] for each in json.loads(done.stdout)["items"]] == [0]
    with contextlib.ExitStack() as files:
        command = ["exec", job, *url, "--", "sleep", "1002"]
        session = forks.start(files, forks.TRAINHALL, command)
        (inside,) = eventually("the command", lambda: sleeping("1002"))
        cluster.request("DELETE", f"/training/jobs/{job}")
        cluster.wait_for(job, "cancelled")
        # The command ends before the process that reports its end, or after it.
        assert session.wait(30) in (1, 137)
        assert not inside.is_running()
    done = forks.run(forks.TRAINHALL, ["exec", job, *url])
    assert done.returncode == 5
    assert "it is cancelled, and has no processes" in done.stderr


def test_session_ends_with_a_killed_agent(cluster_of_its_own: Cluster, tmp_path: Path) -> None:
    cluster = cluster_of_its_own
    job, _ = start(cluster, tmp_path)
    with contextlib.ExitStack() as files:
        command = ["exec", job, "--url", cluster.url, "--", "sleep", "1003"]
        session = forks.start(files, forks.TRAINHALL, command)
        (inside,) = eventually("the command", lambda: sleeping("1003"))
        cluster.agent.kill()
        assert session.wait(30) == 1
        eventually("the end", lambda: not inside.is_running())
    (rank,) = cluster.rank_processes(job)
    assert rank.is_running()


def sleeping(seconds: str) -> list[psutil.Process]:
    all_ = psutil.process_iter(["cmdline"])
    return [each for each in all_ if each.info["cmdline"] == ["sleep", seconds]]


def test_interactive_job_waits_for_its_next_session(cluster_of_its_own: Cluster) -> None:
    cluster = cluster_of_its_own
    asked = ["submit", "--interactive", "--url", cluster.url]
    done = forks.run(forks.TRAINHALL, [*asked, "--", "sh", "-c", "echo $RANK; exit 3"])
    assert done.stdout.count("\n") == 2, done.stderr
    job, rank = done.stdout.split()
    assert (done.returncode, rank) == (3, "0")
    assert f"Enter it again: trainhall exec {job}" in done.stderr

    def use() -> str | None:
        since: str | None = cluster.get(f"/training/jobs/{job}")["interactive"]["idle_since"]
        return since

    since = eventually("the end of the session", use)
    with contextlib.ExitStack() as files:
        command = ["exec", job, "--url", cluster.url, "--", "sleep", "1004"]
        session = forks.start(files, forks.TRAINHALL, command)
        eventually("a session", lambda: use() is None)
        session.kill()
        session.wait(30)
        assert eventually("the end of the session", use) > since
    cluster.request("DELETE", f"/training/jobs/{job}")
    cluster.wait_for(job, "cancelled")
    done = forks.run(forks.TRAINHALL, [*asked, "--rm", "--", "true"])
    cluster.wait_for(done.stdout.strip(), "cancelled")
