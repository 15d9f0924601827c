"""The systemd units: they are valid, and stopping the agent's leaves its shims and ranks alone."""

import configparser
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.core
import typer.main
from support.cluster.cluster import Cluster
from support.holds import STEPS, Gate
from support.waiting import PATIENCE, eventually

from trainhall.cli.main import app

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))


def commands() -> Any:
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    return group.commands


def service(unit: Path) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[method-assign,assignment]  # as its manual says
    parser.read(unit)
    return parser["Service"]


def command(unit: Path) -> list[str]:
    program, *arguments = service(unit)["ExecStart"].split()
    assert program == "/opt/trainhall/bin/trainhall"
    return arguments


@pytest.mark.processes
@pytest.mark.parametrize("unit", UNITS, ids=lambda p: p.name)
def test_systemd_takes_the_unit(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here")
    copy = tmp_path / unit.name
    program = Path(sys.executable).parent / "trainhall"
    copy.write_text(unit.read_text().replace("/opt/trainhall/bin/trainhall", str(program)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    # Known from systemd 254 on; an earlier one only says so.
    unknown = [line for line in done.stderr.splitlines() if "'DelegateSubgroup'" not in line]
    assert (done.returncode, unknown) == (0, [])


@pytest.mark.parametrize("unit", UNITS, ids=lambda p: p.name)
def test_command_of_a_unit_exists(unit: Path) -> None:
    name, *arguments = command(unit)
    found = commands()[name]
    options = {option for param in found.params for option in param.opts}
    assert {word for word in arguments if word.startswith("--")} <= options


def test_unit_sets_only_known_agent_variables() -> None:
    named = set(re.findall(r"^#?(TRAINHALL_\w+)=", (DEPLOY / "agent.env").read_text(), re.M))
    agent = commands()["agent"]
    assert named <= {param.envvar for param in agent.params}


def test_units_have_users_and_folders_of_their_own() -> None:
    sections = [service(unit) for unit in UNITS]
    for key in ("User", "StateDirectory"):
        assert len({section[key] for section in sections}) == len(sections)
    for unit, section in zip(UNITS, sections, strict=True):
        arguments = command(unit)
        folder = arguments[arguments.index("--data-dir") + 1]
        assert folder == f"/var/lib/{section['StateDirectory']}"


@pytest.mark.acceptance
def test_unit_restart_keeps_ranks_running(tmp_path: Path, gate: Gate) -> None:
    unit = DEPLOY / "trainhall-agent.service"
    # Of the whole control group systemd signals the main process alone.
    assert service(unit)["KillMode"] == "process"
    cluster = Cluster(tmp_path, slots=1)
    cluster.agent.arguments = [
        word.replace("/var/lib/trainhall", str(tmp_path)) for word in command(unit)
    ]
    try:
        cluster.start_coordinator()
        token = cluster.post("/cluster/nodes", json={"name": "here"})["join_token"]
        cluster.agent.env |= {"TRAINHALL_COORDINATOR": cluster.url, "TRAINHALL_SLOTS": "1"}
        cluster.agent.env["TRAINHALL_JOIN_TOKEN"] = token
        cluster.agent.start()
        eventually("the node", cluster.node_is_ready)
        job = cluster.submit(
            {"name": "held", "task": gate.task("synthetic"), "training": {"steps": STEPS}}
        )
        cluster.wait_for_step(job, 5)
        ranks = [process.pid for process in cluster.rank_processes(job)]
        cluster.agent.signal(signal.SIGTERM)
        assert cluster.agent.process is not None
        assert cluster.agent.process.wait(PATIENCE) == 0
        assert [process.pid for process in cluster.rank_processes(job)] == ranks
        # The file may lose the token once the agent has joined.
        del cluster.agent.env["TRAINHALL_JOIN_TOKEN"]
        cluster.agent.start()
        gate.open()
        assert cluster.wait_for(job, "completed")["attempt"] == 1
    finally:
        cluster.stop()
        cluster.sweep()
