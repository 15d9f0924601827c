"""docker-compose.yml, as far as it can be tried without Docker: its commands run as they stand."""

import json
import os
import re
import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from support.cluster.cluster import Cluster
from support.cluster.up import PATIENCE
from support.cluster.web import bearer
from support.waiting import eventually

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).parents[2]
SERVICES = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def states(cluster: Cluster) -> list[str]:
    return [node["state"] for node in cluster.get("/cluster/nodes")["items"]]


def agent_script(url: str, data: Path) -> str:
    """The agent's command as its container runs it, but for the addresses."""
    (script,) = SERVICES["agent"]["command"]
    return (
        str(script)
        .replace("$$", "$")
        .replace("/var/lib/trainhall", str(data))
        .replace("http://coordinator:8000", url)
    )


def agent_env(cluster: Cluster, data: Path) -> dict[str, str]:
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith("TRAINHALL_")},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TRAINHALL_DATA_DIR": str(data),
        "TRAINHALL_SLOTS": "1",
        "TRAINHALL_RUNTIME_DIR": str(cluster.runtime),
    }


@pytest.mark.parametrize("auth", ["none", "token"])
def test_compose_trains_on_postgres(
    auth: str, tmp_path: Path, new_postgres: Callable[[], str]
) -> None:
    cluster = Cluster(tmp_path)
    joining: dict[str, str] = {}
    assert SERVICES["coordinator"]["environment"]["TRAINHALL_AUTH"] == "${TRAINHALL_AUTH:-none}"
    cluster.coordinator.env |= {"TRAINHALL_AUTH": auth, "XDG_CONFIG_HOME": str(tmp_path)}
    data = tmp_path / "agent"
    arguments = [*SERVICES["coordinator"]["command"], "--port", str(cluster.port)]
    assert arguments[0] == "server"
    cluster.coordinator.arguments = [*arguments, "--data-dir", str(tmp_path / "data")]
    cluster.coordinator.env["DATABASE_URL"] = new_postgres()
    agent: subprocess.Popen[bytes] | None = None

    def start_agent(number: int) -> "subprocess.Popen[bytes]":
        output = tmp_path / f"agent.{number}.log"
        with output.open("wb") as log:
            started = subprocess.Popen(
                [*SERVICES["agent"]["entrypoint"], agent_script(cluster.url, data)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=agent_env(cluster, data) | joining,
            )  # fmt: skip

        def connected() -> bool:
            assert started.poll() is None, output.read_text()
            return "connected coordinator=" in output.read_text()

        eventually("the agent", connected, timeout=PATIENCE)
        eventually("the node", lambda: states(cluster) == ["ready"], timeout=PATIENCE)
        return started

    try:
        cluster.start_coordinator()
        _, *probe = SERVICES["coordinator"]["healthcheck"]["test"]
        health = [word.replace("http://127.0.0.1:8000", cluster.url) for word in probe]
        subprocess.run([sys.executable, *health[1:]], check=True)
        if auth == "token":
            cluster.http.headers.update(bearer(tmp_path / "data"))
            token = cluster.post("/cluster/nodes", json={})["join_token"]
            assert "TRAINHALL_JOIN_TOKEN" in SERVICES["agent"]["environment"]
            joining["TRAINHALL_JOIN_TOKEN"] = token
        agent = start_agent(1)
        spec = {"name": "q", "task": {"name": "digits"}, "training": {"steps": 5}}
        assert cluster.wait_for(cluster.submit(spec), "completed")["step"] == 5
        agent.terminate()
        assert agent.wait(30) == 0
        # It joins once and is known again.
        agent = start_agent(2)
        (node,) = cluster.get("/cluster/nodes")["items"]
        assert node["name"] == socket.gethostname()
        agent.terminate()
        assert agent.wait(30) == 0
    finally:
        if agent is not None and agent.poll() is None:
            agent.kill()
            agent.wait()
        cluster.stop()
        cluster.sweep()


def test_files_agree_about_folders_arguments_and_programs() -> None:
    instructions = [
        line.split(maxsplit=1) for line in DOCKERFILE.splitlines() if line[:1].isupper()
    ]
    named = dict(instructions)
    assert json.loads(named["ENTRYPOINT"]) == ["trainhall"]
    folder = named["VOLUME"]
    assert f"TRAINHALL_DATA_DIR={folder}" in DOCKERFILE
    arguments = {rest.partition("=")[0] for word, rest in instructions if word == "ARG"}
    for name, service in SERVICES.items():
        if name == "postgres":
            continue
        assert set(service["build"].get("args", {}) if service["build"] != "." else {}) <= arguments
        assert [mount.split(":")[1] for mount in service["volumes"]] == [folder]
    for source in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.M):
        for path in source.split():
            assert (ROOT / path).exists(), path


INDEX = "https://packages.example/cpu"


@pytest.mark.parametrize(
    ("torch", "installed"),
    [("none", []), ("cpu", ["--index-url", INDEX]), ("cuda", ["torchvision"]), ("gpu", None)],
)
def test_image_installs_the_requested_pytorch(
    torch: str, installed: list[str] | None, tmp_path: Path
) -> None:
    (script,) = re.findall(r"^RUN (case .*?esac)$", DOCKERFILE, re.M | re.S)
    pip = tmp_path / "pip"
    pip.write_text('#!/bin/sh\necho "$@"\n')
    pip.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", "-c", script.replace("\\\n", " ")], capture_output=True, text=True, check=False,
        env={"PATH": f"{tmp_path}:/bin:/usr/bin", "TORCH": torch, "TORCH_CPU_INDEX": INDEX},
    )  # fmt: skip
    if installed is None:
        assert done.returncode == 2
        assert "TORCH is none, cpu or cuda, not gpu" in done.stderr
        return
    assert done.returncode == 0
    assert all(word in done.stdout for word in installed)
    assert bool(done.stdout) == bool(installed)
    assert (INDEX in done.stdout) == (torch == "cpu")
    (needed,) = [d for d in PROJECT["optional-dependencies"]["train"] if d.startswith("torch>")]
    assert needed in done.stdout or torch == "none"
