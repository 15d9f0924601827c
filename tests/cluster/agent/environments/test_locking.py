"""Locks: of what a job names in each of its forms, and why there is none."""

import os
import re
from pathlib import Path

import pytest
from support.storage.wheels import add_wheel

from trainhall.cluster.agent.environments import host_packages
from trainhall.cluster.agent.environments.locking import Locking, find_interpreter
from trainhall.cluster.agent.environments.uv import EnvironmentFailedError, Uv
from trainhall.cluster.wire.environment_lock import EnvironmentLock
from trainhall.training.link.failure import Cause
from trainhall.training.spec.world.environment import EnvironmentSpec

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("wheels")]

HEADER = '# /// script\n# requires-python = "{}"\n# dependencies = ["alpha"]\n# ///\nimport alpha\n'
PROJECT = '[project]\nname = "lab"\nversion = "1"\nrequires-python = "{}"\ndependencies = [{}]\n'


def pinned(lock: EnvironmentLock) -> list[str]:
    lines = lock.requirements.splitlines()
    return [line.removesuffix(" \\") for line in lines if "==" in line]


async def lock(folder: Path, **given: object) -> EnvironmentLock:
    """Lock with the files of `folder/code`."""
    uv, work = Uv(dict(os.environ), set()), folder / "work"
    work.mkdir()
    spec = EnvironmentSpec.model_validate(given)
    interpreter = await find_interpreter(uv, spec.python, folder)
    return await Locking(uv, spec, work, folder / "code").lock(interpreter)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    return folder


async def test_list_is_locked_without_the_hosts_torch(tmp_path: Path) -> None:
    found = await lock(tmp_path, requirements=["alpha", "gamma"])
    assert pinned(found) == ["alpha==1.0", "beta==1.5", "gamma==1.0"]
    assert found.requirements.count("--hash=sha256:") == found.packages == 3
    assert (found.torch, found.python) == ("host", host_packages.minor_version())


async def test_torch_is_locked_if_the_job_wants_that(tmp_path: Path) -> None:
    found = await lock(tmp_path, requirements=["gamma"], torch="lock")
    assert pinned(found) == ["gamma==1.0", "torch==99.0"]
    assert found.torch == "lock"


async def test_script_header_is_read(tmp_path: Path, code: Path) -> None:
    (code / "train.py").write_text(HEADER.format(">=3.11"))
    assert pinned(await lock(tmp_path, requirements="train.py")) == ["alpha==1.0", "beta==1.5"]


async def test_lock_file_of_a_project_counts(tmp_path: Path, code: Path, wheels: Path) -> None:
    (code / "pyproject.toml").write_text(PROJECT.format(">=3.11", '"beta", "gamma"'))
    await Uv(dict(os.environ), set()).run("lock", cwd=code)
    add_wheel(wheels, "beta", "2.0")
    assert pinned(await lock(tmp_path, project=".")) == ["beta==1.5", "gamma==1.0"]


async def test_indexes_of_a_file_go_with_the_lock(tmp_path: Path, code: Path) -> None:
    place = str(add_wheel(tmp_path / "lab", "delta", "1.0").parent)
    (code / "r.txt").write_text(f"-f {place}\ndelta\n")
    found = await lock(tmp_path, requirements="r.txt")
    assert found.options == ["--find-links", place]
    assert pinned(found) == ["delta==1.0"]
    assert place not in found.requirements, "its address may hold a password"


@pytest.mark.parametrize(
    ("files", "given", "words"),
    [
        ({}, {"requirements": ["nosuch>=3"]}, "nosuch was not found in the package registry"),
        ({}, {"requirements": ["alpha", "beta<1"]}, "you require beta<1"),
        ({}, {"requirements": "r.txt"}, "environment.requirements: r.txt cannot be read"),
        ({"r.txt": "-e .", "pyproject.toml": PROJECT.format(">=3.11", "")},
         {"requirements": "r.txt"}, "is no package of an index"),
        ({"r.txt": "--find-links here\nbeta"}, {"requirements": "r.txt"}, "not have; give a URL"),
        ({"t.py": "import alpha\n"}, {"requirements": "t.py"}, "t.py has no header"),
        ({"t.py": HEADER.format(">=3.99")}, {"requirements": "t.py"},
         "t.py is for another Python: it requires >=3.99"),
        ({"pyproject.toml": "["}, {"project": "."}, "pyproject.toml is not valid TOML"),
        ({"pyproject.toml": PROJECT.format(">=3.11", ""), "uv.lock": 'requires-python = "<3.9"'},
         {"project": "."}, "uv.lock is for another Python: it requires <3.9"),
        ({}, {"python": "3.99"}, "this host has no Python 3.99"),
    ],
)  # fmt: skip
async def test_what_cannot_be_locked_says_why(
    tmp_path: Path, code: Path, files: dict[str, str], given: dict[str, object], words: str
) -> None:
    for name, text in files.items():
        (code / name).write_text(text)
    with pytest.raises(EnvironmentFailedError, match=re.escape(words)) as failed:
        await lock(tmp_path, **given)
    assert "\n" not in str(failed.value)


async def test_unreachable_index_is_no_users_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("UV_NO_INDEX", "UV_FIND_LINKS"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with pytest.raises(EnvironmentFailedError, match=r"Failed to fetch.*127\.0\.0\.1:9") as failed:
        await lock(tmp_path, requirements=["alpha"])
    assert failed.value.cause is Cause.NOT_STARTED


async def test_missing_uv_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentFailedError, match="uv is not installed on this host"):
        await lock(tmp_path, requirements=["alpha"])
