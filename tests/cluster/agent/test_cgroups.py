"""Control groups of attempts, on a tree of files as Linux shows it.

The kernel fills in what it keeps itself: the fake tree has it from the beginning.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.cluster.agent_process import launch_of, until

from trainhall.cluster.agent.attempt import Attempt
from trainhall.cluster.agent.attempts import Attempts
from trainhall.cluster.agent.data_dir import DataDir
from trainhall.cluster.agent.job_settings import JobSettings, cgroup_name, check_limits
from trainhall.cluster.agent.launch.launcher import Launcher
from trainhall.cluster.agent.options import AgentError
from trainhall.cluster.agent.os_support import cgroups
from trainhall.cluster.agent.os_support.cgroups import Cgroups
from trainhall.cluster.agent.reconcile import Stage
from trainhall.cluster.agent.shim import folder_ipc
from trainhall.cluster.agent.shim.confinement import Confinement
from trainhall.training.link.folder import AttemptFolder, replace_json

GIB = 2**30


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A unified hierarchy with a service that has its own group delegated."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "getxattr", lambda *_: b"1", raising=False)
    root = tmp_path / "cgroup"
    unit = root / "system.slice/agent.service"
    for group in (root, unit, unit / "agent"):
        group.mkdir(parents=True)
        for name in ("cgroup.procs", "cgroup.subtree_control"):
            (group / name).touch()
    (root / "cgroup.controllers").write_text("cpu memory pids\n")
    return root


def found_at(tree: Path, path: str) -> Cgroups | None:
    own = tree.parent / "self"
    own.write_text(f"1:name=systemd:/x\n0::{path}\n")
    return cgroups.find(tree, own)


def test_agent_in_a_group_of_its_own_sets_limits(tree: Path) -> None:
    found = found_at(tree, "/system.slice/agent.service/agent")
    unit = tree / "system.slice/agent.service"
    assert found == Cgroups(unit, has_limits=True)
    assert (unit / "cgroup.subtree_control").read_text() == "+memory +pids"
    group = found.make("job-a", 48 * GIB)
    assert group == unit / "job-a"
    assert int((group / "memory.max").read_text()) == 48 * GIB
    assert int((group / "pids.max").read_text()) == cgroups.MAX_PIDS


def test_host_keeps_memory_for_itself() -> None:
    assert 60 * GIB < cgroups.usable_memory(64 * GIB) < 62 * GIB
    assert cgroups.usable_memory(GIB) == GIB // 2


@pytest.mark.parametrize(
    ("asked", "limit"), [(None, 61), (48 * GIB, 48), (1000 * GIB, 61)], ids=["none", "less", "more"]
)
def test_memory_of_attempts_is_as_asked(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: int | None, limit: int
) -> None:
    monkeypatch.setattr(
        "psutil.virtual_memory", lambda: SimpleNamespace(total=64 * GIB + 512 * 2**20)
    )
    found = found_at(tree, "/system.slice/agent.service/agent")
    launch = launch_of({"task": {"name": "digits"}})
    data_dir = DataDir(tmp_path / "agent")
    attempt = Attempt(launch.token, data_dir.attempt(launch.token), launch, Stage.READY)
    nothing = cast(Any, None)
    settings = JobSettings({}, None, found, memory=asked)
    launcher = Launcher(data_dir, nothing, nothing, settings, lambda: None)
    confinement = Confinement.model_validate_json(launcher._confinement(attempt))
    assert confinement.cgroup is not None
    group = Path(confinement.cgroup)
    assert int((group / "memory.max").read_text()) // GIB == limit


def test_limit_that_would_not_hold_is_refused(tree: Path) -> None:
    check_limits(found_at(tree, "/system.slice/agent.service/agent"))
    for found in (None, found_at(tree, "/system.slice/agent.service")):
        with pytest.raises(AgentError, match="DelegateSubgroup=agent"):
            check_limits(found)


def test_agent_in_the_delegated_group_sets_no_limits(tree: Path) -> None:
    """It could pass on controllers only if it were in a group below."""
    found = found_at(tree, "/system.slice/agent.service")
    assert found == Cgroups(tree / "system.slice/agent.service", has_limits=False)
    group = found.make("job-a", GIB)
    assert group is not None
    assert not (group / "memory.max").exists()


def test_without_delegation_there_are_no_groups(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found_at(tree, "/") is None
    assert found_at(tree, "/gone") is None
    assert cgroups.find(tree.parent / "nothing", tree.parent / "self") is None
    (tree.parent / "self").write_text("4:memory:/x\n")
    assert cgroups.find(tree, tree.parent / "self") is None
    monkeypatch.setattr(os, "getxattr", lambda *_: b"0")
    assert found_at(tree, "/system.slice/agent.service/agent") is None
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert found_at(tree, "/system.slice/agent.service/agent") is None
    monkeypatch.setattr(os, "access", lambda *_: True)
    assert found_at(tree, "/system.slice/agent.service/agent") is not None


def test_group_is_ended_and_removed(tree: Path) -> None:
    found = Cgroups(tree, has_limits=False)
    group = found.make("job-a", GIB)
    assert group is not None
    (group / "cgroup.procs").write_text("12\n345\n")
    assert found.pids("job-a") == {12, 345}
    assert found.pids("job-b") == set()
    found.kill("job-a")  # an old kernel has no such file, and makes none
    assert not (group / "cgroup.kill").exists()
    (group / "cgroup.kill").touch()
    found.kill("job-a")
    assert (group / "cgroup.kill").read_text() == "1"
    assert not found.remove("job-a")
    for path in group.iterdir():
        path.unlink()
    assert found.remove("job-a")
    assert found.remove("job-a")


@pytest.mark.processes
def test_shim_enters_its_group_first(tree: Path) -> None:
    text = Confinement(cgroup=str(tree / "system.slice")).model_dump_json()
    (tree / "system.slice" / "cgroup.procs").touch()
    subprocess.run(
        [sys.executable, "-m", "trainhall.cluster.agent.shim.main", str(tree / "gone"),
         "--confinement", text],
        check=True,
    )  # fmt: skip
    assert (tree / "system.slice" / "cgroup.procs").read_text() == "0"


def test_group_that_is_gone_keeps_no_shim_from_starting(tree: Path) -> None:
    Confinement(cgroup=str(tree / "gone" / "group")).enter()


@pytest.mark.processes
async def test_sweep_ends_the_processes_of_the_group(tree: Path, tmp_path: Path) -> None:
    """A shim was killed; nothing else shows whose the process is that it leaves."""
    data_dir = DataDir(tmp_path / "agent")
    launch = launch_of({"script": {"path": "/train.py"}})
    folder = data_dir.attempt(launch.token)
    folder.path.mkdir(parents=True)
    replace_json(folder.launch, launch)
    folder_ipc.lock_path(folder).write_text("1")
    groups = Cgroups(tree, has_limits=False)
    group = groups.make(cgroup_name(folder), GIB)
    assert group is not None
    left = await asyncio.create_subprocess_exec("/bin/sleep", "600", env={})
    (group / "cgroup.procs").write_text(f"{left.pid}\n")
    attempts = Attempts(
        data_dir, cast(Any, None), cast(Any, None), lambda: None, JobSettings({}, None, groups)
    )
    try:
        attempts.observed.find()
        assert await asyncio.wait_for(left.wait(), 30) == -signal.SIGKILL
        (group / "cgroup.procs").write_text("")
        await until("its end", lambda: attempts.observed.reports()[0].outcome == "failed")
        (group / "cgroup.procs").unlink()
        attempts.observed.remove_cgroup(folder)
        assert not group.exists()
    finally:
        with contextlib.suppress(ProcessLookupError):
            left.kill()
        await attempts.close()


def test_attempts_have_groups_of_their_own(tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path)
    launches = [launch_of({"task": {"name": "digits"}}, attempt=n) for n in (1, 2)]
    names = [
        cgroup_name(Attempt(x.token, data_dir.attempt(x.token), x, Stage.READY).folder)
        for x in launches
    ]
    assert names == ["job-job-a1-g1", "job-job-a2-g1"]
    assert cgroup_name(AttemptFolder(Path("/x/job/a1-g1"))) == names[0]
