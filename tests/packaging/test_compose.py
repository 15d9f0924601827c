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

import httpx
import pytest
import yaml
from support.cluster.cluster import Cluster
from support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).parents[2]
SERVICES = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def states(cluster: Cluster) -> list[str]:
    return [node["state"] for node in cluster.get("/cluster/nodes")["items"]]


def command_of(name: str, cluster: Cluster) -> list[str]:
    """The command of a service as its container runs it, but for the addresses."""
    (script,) = SERVICES[name]["command"]
    script = str(script).replace("$$", "$").replace("http://coordinator:8000", cluster.url)
    for mount in SERVICES[name]["volumes"]:
        volume, folder = mount.split(":")[:2]
        script = script.replace(folder, str(cluster.folder / volume))
    script = script.replace("/tmp/node.json", str(cluster.folder / "node.json"))
    return [*SERVICES[name]["entrypoint"], script]


def env_of(cluster: Cluster) -> dict[str, str]:
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith("TRAINHALL_")},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        # Of another user, who has no credential.
        "XDG_CONFIG_HOME": str(cluster.folder / "nobody"),
        "TRAINHALL_DATA_DIR": str(cluster.folder / "agent"),
        "TRAINHALL_SLOTS": "1",
        "TRAINHALL_RUNTIME_DIR": str(cluster.runtime),
    }


def test_compose_trains_on_postgres(tmp_path: Path, new_postgres: Callable[[], str]) -> None:
    cluster = Cluster(tmp_path)
    for volume in ("agent", "join"):
        (tmp_path / volume).mkdir()
    arguments = [*SERVICES["coordinator"]["command"], "--port", str(cluster.port)]
    assert arguments[0] == "server"
    cluster.coordinator.arguments = [*arguments, "--data-dir", str(tmp_path / "coordinator")]
    cluster.coordinator.env["DATABASE_URL"] = new_postgres()
    agent: subprocess.Popen[bytes] | None = None

    def start_agent(number: int) -> "subprocess.Popen[bytes]":
        subprocess.run(command_of("join", cluster), check=True, env=env_of(cluster))
        output = tmp_path / f"agent.{number}.log"
        with output.open("wb") as log:
            started = subprocess.Popen(
                command_of("agent", cluster),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env_of(cluster),
            )  # fmt: skip

        def connected() -> bool:
            assert started.poll() is None, output.read_text()
            return "connected coordinator=" in output.read_text()

        eventually("the agent", connected)
        eventually("the node", lambda: states(cluster) == ["ready"])
        return started

    try:
        cluster.start_coordinator()
        _, *probe = SERVICES["coordinator"]["healthcheck"]["test"]
        health = [word.replace("http://127.0.0.1:8000", cluster.url) for word in probe]
        subprocess.run([sys.executable, *health[1:]], check=True)
        assert httpx.get(f"{cluster.url}/api/v1/training/jobs").status_code == 401
        agent = start_agent(1)
        spec = {"name": "q", "task": {"name": "digits"}, "training": {"steps": 5}}
        assert cluster.wait_for(cluster.submit(spec), "completed")["step"] == 5
        agent.terminate()
        assert agent.wait(PATIENCE) == 0
        # It joins once and is known again.
        agent = start_agent(2)
        (node,) = cluster.get("/cluster/nodes")["items"]
        assert node["name"] == socket.gethostname()
        agent.terminate()
        assert agent.wait(PATIENCE) == 0
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
    (owned,) = [line.split()[4:] for line in DOCKERFILE.splitlines() if "install -d -o" in line]
    arguments = {rest.partition("=")[0] for word, rest in instructions if word == "ARG"}
    for name, service in SERVICES.items():
        if name == "postgres":
            continue
        assert set(service["build"].get("args", {}) if service["build"] != "." else {}) <= arguments
        mounts = [mount.split(":")[1] for mount in service["volumes"]]
        assert mounts[0] == folder
        # A new volume belongs to whom the folder of the image belongs to.
        assert set(mounts) <= set(owned)
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
