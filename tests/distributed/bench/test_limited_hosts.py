"""Hosts made of network namespaces: links that are limited, and nothing left behind."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
from support.waiting import eventually

from trainhall.distributed.bench.hosts import NetworkNotAllowedError, check_allowed, limited_hosts


@pytest.fixture
def allowed() -> None:
    try:
        with limited_hosts(1, 1e9):
            pass
    except NetworkNotAllowedError as error:
        pytest.skip(str(error))


@pytest.mark.processes
@pytest.mark.usefixtures("allowed")
def test_limited_hosts_have_the_requested_bandwidth() -> None:
    with limited_hosts(2, 1e8) as (one, other):
        said = subprocess.check_output([*one.prefix, "tc", "-j", "qdisc", "show", "dev", "eth0"])
        assert json.loads(said)[0]["options"]["rate"] == 1e8 / 8  # in bytes
        said = subprocess.check_output([*one.prefix, "ip", "-j", "route", "get", other.address])
        assert json.loads(said)[0]["dev"] == "eth0"
        assert {one.space, other.space} < spaces()
    assert not spaces(os.getpid())


@pytest.mark.processes
@pytest.mark.usefixtures("allowed")
def test_killed_process_leaves_no_network() -> None:
    code = (
        "import time\nfrom trainhall.distributed.bench.hosts import limited_hosts\n"
        "with limited_hosts(2, 1e9) as hosts:\n"
        "    import subprocess\n"
        "    subprocess.Popen([*hosts[0].prefix, 'sleep', '600'])\n"
        "    print('up', flush=True)\n    time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"up\n"
        assert len(spaces(process.pid)) == 3
        process.send_signal(signal.SIGKILL)
    eventually("the network to be gone", lambda: not spaces(process.pid))


def test_missing_network_programs_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: None)
    with pytest.raises(
        NetworkNotAllowedError, match="take Linux, root, and iproute2; there is no ip and no tc"
    ):
        check_allowed()


def test_limited_hosts_require_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: program)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NetworkNotAllowedError, match="you are not root"):
        check_allowed()


def spaces(pid: int | None = None) -> set[str]:
    """Network namespaces, or only those that a process made."""
    listed = subprocess.check_output(["ip", "netns", "list"], text=True)
    names = {line.split()[0] for line in listed.splitlines()}
    return {name for name in names if pid is None or name.startswith(f"trainhall-{pid}-")}
