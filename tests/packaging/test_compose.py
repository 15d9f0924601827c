"""docker-compose.yml, as far as it can be tried without Docker: its commands run as they stand."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.cluster import Cluster
from support.waiting import eventually

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).parents[2]
SERVICES = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]


def states(cluster: Cluster) -> list[str]:
    return [node["state"] for node in cluster.get("/cluster/nodes")["items"]]


def test_the_agent_joins_once_and_is_known_again(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    data = tmp_path / "agent"
    shell = SERVICES["agent"]["entrypoint"]
    (script,) = SERVICES["agent"]["command"]
    try:
        cluster.start_coordinator()
        script = (
            script.replace("$$", "$")
            .replace("/var/lib/trainhall", str(data))
            .replace("http://coordinator:8000", cluster.url)
        )
        env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("TRAINHALL_")},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TRAINHALL_DATA_DIR": str(data),
            "TRAINHALL_SLOTS": "1",
            "TRAINHALL_RUNTIME_DIR": str(cluster.runtime),
        }
        for start in (1, 2):
            output = tmp_path / f"agent.{start}.log"
            with output.open("wb") as log:
                agent = subprocess.Popen(
                    [*shell, script], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env
                )

            def connected(agent: "subprocess.Popen[bytes]" = agent, output: Path = output) -> bool:
                assert agent.poll() is None, output.read_text()
                return "connected to" in output.read_text()

            eventually("the agent", connected)
            eventually("the node", lambda: states(cluster) == ["ready"])
            agent.terminate()
            assert agent.wait(30) == 0
        (node,) = cluster.get("/cluster/nodes")["items"]
        assert node["name"] == socket.gethostname()
    finally:
        cluster.stop()
        cluster.sweep()


def test_the_coordinator_runs_on_postgres_beyond_loopback(
    tmp_path: Path, database_url: str
) -> None:
    cluster = Cluster(tmp_path)
    arguments = [*SERVICES["coordinator"]["command"], "--port", "0"]
    assert arguments[0] == "server"
    cluster.coordinator.arguments = [*arguments, "--data-dir", str(tmp_path / "data")]
    cluster.coordinator.env["DATABASE_URL"] = database_url
    try:
        cluster.start_coordinator()
        assert cluster.get("/training/jobs")["items"] == []
    finally:
        cluster.stop()
        cluster.sweep()
