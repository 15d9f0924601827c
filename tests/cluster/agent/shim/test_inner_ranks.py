"""Ranks in a container: their command, their folder and their variables."""

from pathlib import Path
from typing import Any

import pytest
from support.cluster.agent_process import launch_of

from trainhall.cluster.agent.shim import rank_process, script_launch
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.launch import AttemptContainer, Launch, Rendezvous

CONTAINER = AttemptContainer(image="lab@sha256:1", python="/opt/bin/python", mounts={})


def inside(script: dict[str, Any], code: str | None = "/a/code") -> Launch:
    spec = {
        "script": script,
        "code": "0" * 64 if code else None,
        "environment": {"image": "lab:1", "variables": {"OURS": "1"}},
    }
    return launch_of(spec).model_copy(update={"container": CONTAINER, "code": code})


@pytest.mark.parametrize(
    ("script", "code", "command", "folder"),
    [
        ({"path": "t.py"}, "/a/code", "/opt/bin/python /a/code/t.py", "/a/code"),
        ({"path": "/w/t.py"}, None, "/opt/bin/python /w/t.py", "/w"),
        ({"module": "pkg.t", "args": ["-x"]}, "/a", "/opt/bin/python -m pkg.t -x", "/a"),
        ({"path": "t.sh", "interpreter": "bash"}, "/a", "bash /a/t.sh", "/a"),
        ({"path": "t.py", "working_dir": "sub"}, "/a", "/opt/bin/python /a/t.py", "/a/sub"),
    ],
)
def test_script_has_a_command_and_a_folder(
    script: dict[str, Any], code: str | None, command: str, folder: str
) -> None:
    launch = inside(script, code)
    assert launch.spec.script is not None
    found = script_launch.inner_command(launch, launch.spec.script, CONTAINER.python)
    assert found == (command.split(), folder)


def test_paths_of_the_host_stay_outside(tmp_path: Path) -> None:
    launch = inside({"path": "t.py"})
    base = {
        "PATH": "/host", "LD_LIBRARY_PATH": "/host", "HF_HOME": "/host", "NCCL_DEBUG": "INFO",
        "http_proxy": "http://proxy",
    }  # fmt: skip
    rendezvous = Rendezvous(address="127.0.0.1", port=1)
    env = rank_process.environment(
        base, AttemptFolder(tmp_path), launch, launch.ranks[0], rendezvous
    )
    assert not {"PATH", "LD_LIBRARY_PATH", "HF_HOME", "VIRTUAL_ENV"} & env.keys()
    found = {name: env[name] for name in ("NCCL_DEBUG", "http_proxy", "OURS", "RANK")}
    assert found == {
        "NCCL_DEBUG": "INFO", "http_proxy": "http://proxy", "OURS": "1", "RANK": "0",
    }  # fmt: skip
