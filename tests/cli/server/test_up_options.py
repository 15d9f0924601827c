"""What `up` is told at its start, and what it says of it."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trainhall.cli.base import options as cli_options
from trainhall.cli.base.errors import CliError, UsageError
from trainhall.cli.main import app
from trainhall.cli.server import serve, up
from trainhall.cluster.agent import devices
from trainhall.cluster.agent import options as agent_options


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


def test_up_hands_its_user_of_jobs_to_the_agent(tmp_path: Path) -> None:
    def arguments(run_as: str | None) -> list[str]:
        with up._listening("127.0.0.1", 0) as listener:
            return up.LocalCluster(
                tmp_path, "127.0.0.1", listener, None, False, None, [], run_as, None
            )._agent_arguments

    given = arguments("70000-70010")
    assert given[given.index("--run-as") + 1] == "70000-70010"
    assert "--run-as" not in arguments(None)
