"""What `up` is told at its start, and what it says of it."""

import os
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trainhall.cli.base import options as cli_options
from trainhall.cli.base.errors import CliError, UsageError
from trainhall.cli.main import app
from trainhall.cli.server import serve, up
from trainhall.cluster.agent import devices
from trainhall.cluster.agent import options as agent_options
from trainhall.cluster.agent.run_as import RunAs


def test_host_without_any_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "list_gpus", list)
    with pytest.raises(UsageError, match="--slots 0 leaves this host without a device"):
        serve.check_slots(0)
    serve.check_slots(1)
    serve.check_slots(None)
    monkeypatch.setattr(devices, "list_gpus", lambda: ["a GPU"])
    serve.check_slots(0)


def test_up_refuses_too_many_slots() -> None:
    result = CliRunner().invoke(app, ["up", "--slots", "99999999"])
    assert result.exit_code == 2
    assert "must be at most 4,096 (given: 99999999)" in result.output
    assert cli_options.MAX_SLOTS == agent_options.MAX_SLOTS


def test_up_blames_a_foreign_address() -> None:
    with pytest.raises(CliError, match="this host has no such address; choose another --host"):
        up._listening("192.0.2.1", 0)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7"])
def test_up_warns_when_listening_for_others(host: str) -> None:
    warning = up._who_is_refused(host, insecure=False)
    assert warning is not None
    assert "on other hosts are refused" in warning
    assert up._who_is_refused(host, insecure=True) is None
    assert up._who_is_refused("127.0.0.1", insecure=False) is None


def test_up_refuses_users_that_jobs_cannot_run_as(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="is no user of this host"):
        up._check_run_as("no-such-user", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(CliError, match="needs"):
        up._check_run_as("2000000-2000010", tmp_path)


def test_up_checks_users_in_a_new_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """At the first start there is none that they could enter."""
    seen = []
    monkeypatch.setattr(RunAs, "check", lambda _, attempts: seen.append(attempts.is_dir()))
    up._check_run_as("2000000-2000010", tmp_path / "data" / "agent")
    assert seen == [True]


def test_up_hands_its_user_of_jobs_to_the_agent(tmp_path: Path) -> None:
    def arguments(run_as: str | None) -> list[str]:
        with up._listening("127.0.0.1", 0) as listener:
            return up.LocalCluster(
                tmp_path, "127.0.0.1", listener, None, False, None, [], run_as, None
            )._agent_arguments

    given = arguments("70000-70010")
    assert given[given.index("--run-as") + 1] == "70000-70010"
    assert "--run-as" not in arguments(None)


@pytest.fixture
def desktop(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """A host with a browser; whether each cluster that is started opens it."""
    opens: list[bool] = []

    def run(cluster: up.LocalCluster, demo: object, once: bool) -> int:
        opens.append(cluster.opens_browser)
        return 0

    monkeypatch.setattr(up.LocalCluster, "run", run)
    monkeypatch.setattr(up, "can_open", lambda: True)
    monkeypatch.delenv("TRAINHALL_NO_BROWSER", raising=False)
    return opens


def test_up_opens_a_browser_by_default(desktop: list[bool], tmp_path: Path) -> None:
    demo = tmp_path / "digits.yaml"
    demo.write_text("name: quick\ntask: {name: digits}\n")
    command = ["up", "--port", "0", "--data-dir", str(tmp_path / "data")]
    runner = CliRunner()
    for more, env in (
        ([], {}),
        (["--demo", str(demo)], {}),
        (["--demo", str(demo), "--once"], {}),
        (["--no-browser"], {}),
        ([], {"TRAINHALL_NO_BROWSER": "1"}),
    ):
        result = runner.invoke(app, [*command, *more], env=env)
        assert result.exit_code == 0, result.output
    assert desktop == [True, True, False, False, False]


@pytest.mark.parametrize("works", [True, False])
def test_browser_that_fails_leaves_the_link(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, works: bool
) -> None:
    done = threading.Event()
    printed: list[str] = []

    def open_link(link: str) -> bool:
        printed.append("opened")
        if works:
            done.set()
        return works

    def print_link(link: str) -> None:
        printed.append(link)
        done.set()

    monkeypatch.setattr(up, "open_link", open_link)
    monkeypatch.setattr(up, "_print_link", print_link)
    with up._listening("127.0.0.1", 0) as listener:
        cluster = up.LocalCluster(
            tmp_path, "127.0.0.1", listener, None, False, None, [], None, None
        )
        cluster._open("http://127.0.0.1/login#code=x")
        assert done.wait(60)
    assert printed == ["opened", *([] if works else ["http://127.0.0.1/login#code=x"])]
