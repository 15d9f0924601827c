"""Access of an attempt to the API: variables of its ranks, and nothing that others see."""

import os
from pathlib import Path

import pytest
from support.cluster.agent_process import launch_of

from trainhall.cluster.agent.shim import rank_process
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.launch import Rendezvous
from trainhall.training.link.secrets.api_access import ApiAccess, load_api_access, write_api_access

ACCESS = ApiAccess(url="https://hall:8000", token="th_canary", tls_ca="sha256:aa")
OTHERS = {"TRAINHALL_TOKEN": "th_other", "TRAINHALL_URL": "http://elsewhere:8000"}


@pytest.fixture
def folder(tmp_path: Path) -> AttemptFolder:
    return AttemptFolder(tmp_path)


def environment(folder: AttemptFolder, *, asks: bool = True) -> dict[str, str]:
    spec = {"script": {"path": "/train.py", "env": OTHERS}}
    launch = launch_of({**spec, "api_token": "viewer"} if asks else spec)
    return rank_process.environment(
        {"TRAINHALL_TOKEN": "of the agent"}, folder, launch, launch.ranks[0],
        Rendezvous(address="127.0.0.1", port=1),
    )  # fmt: skip


def test_ranks_get_token_with_its_address(folder: AttemptFolder) -> None:
    write_api_access(folder.api_access, ACCESS)
    assert folder.api_access.stat().st_mode & 0o777 == 0o600
    found = environment(folder)
    assert found["TRAINHALL_TOKEN"] == "th_canary"
    assert found["TRAINHALL_URL"] == "https://hall:8000"
    assert found["TRAINHALL_TLS_CA"] == "sha256:aa"
    assert not rank_process._identifies_rank("TRAINHALL_TOKEN"), "others do not see it"
    assert "canary" not in repr(ACCESS)


def test_job_that_does_not_ask_has_its_own(folder: AttemptFolder) -> None:
    write_api_access(folder.api_access, ACCESS)
    found = environment(folder, asks=False)
    assert {name: found[name] for name in OTHERS} == OTHERS


def test_file_that_a_job_replaced_is_no_access(folder: AttemptFolder) -> None:
    assert load_api_access(folder.api_access) is None
    os.mkfifo(folder.api_access)
    assert load_api_access(folder.api_access) is None
    folder.api_access.unlink()
    folder.api_access.write_text("[")
    assert load_api_access(folder.api_access) is None
